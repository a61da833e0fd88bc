"""The compiled floor: loops over bytes. No file names, no exceptions for bad data."""
