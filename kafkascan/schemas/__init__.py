"""Values of records as typed columns, by the schemas of a registry."""
