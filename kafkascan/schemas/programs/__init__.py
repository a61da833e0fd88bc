"""Schemas of Avro, Protobuf and JSON, and the programs that fill columns with values of them."""
