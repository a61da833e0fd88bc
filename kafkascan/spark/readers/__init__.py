"""Entry points of Spark: data frames, the data source, streams."""
