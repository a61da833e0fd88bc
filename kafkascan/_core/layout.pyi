Field = tuple[str, str, int]

batch_header: tuple[Field, ...]
message_v0: tuple[Field, ...]
message_v1: tuple[Field, ...]
time_index_entry: tuple[Field, ...]
offset_index_entry: tuple[Field, ...]
transaction_index_entry: tuple[Field, ...]
snapshot_header: tuple[Field, ...]
producer_entry: tuple[Field, ...]
end_marker: tuple[Field, ...]
row_size: int
log_overhead: int
size_up_to_magic: int
batch_header_size: int
min_lengths: tuple[int, int, int]
crc_starts: tuple[int, int, int]
compression_mask: int
timestamp_type_bit: int
transactional_bit: int
control_bit: int
delete_horizon_bit: int
statuses: tuple[tuple[str, int, str], ...]
