"""Maps `src` to the package `foretune`, which package discovery can't do by itself."""

from setuptools import find_packages, setup

setup(
    packages=[
        "foretune",
        *(f"foretune.{name}" for name in find_packages("src")),
        "foretune.trained_models",
    ]
)
