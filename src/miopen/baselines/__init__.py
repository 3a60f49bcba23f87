"""What foretune is compared with: the nets that AMD ships, and simple pickers."""
