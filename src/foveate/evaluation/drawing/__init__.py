"""What the examples are drawn with: colours, grounds, figures, lettering, pages and forms."""
