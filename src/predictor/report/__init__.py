"""Predicted against tuned as one HTML file that needs no network. Needs the extra `report`."""

from foretune.predictor.report.data import (
    Layer,
    Network,
    Picks,
    ReportData,
    SearchTime,
    WorstPick,
)
from foretune.predictor.report.page import render_report, write_report

__all__ = [
    "Layer",
    "Network",
    "Picks",
    "ReportData",
    "SearchTime",
    "WorstPick",
    "render_report",
    "write_report",
]
