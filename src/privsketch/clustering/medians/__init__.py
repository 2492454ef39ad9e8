"""k-medians: Weiszfeld rounds from a start, or after partition trees."""
