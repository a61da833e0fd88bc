"""The state of share groups from ``__share_group_state``, as a share coordinator loads it."""
