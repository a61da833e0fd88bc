"""The commands themselves: options in, calls of the library, rows and findings out."""
