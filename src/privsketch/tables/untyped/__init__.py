"""Files that do not say what they hold, text and sheets, and what people state of them."""
