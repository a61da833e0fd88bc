/* Refuses CPUs for which nothing here was tested: tables in native byte order and words of
 * checksums are read as little-endian. */
#ifndef KAFKASCAN_LITTLE_ENDIAN_H
#define KAFKASCAN_LITTLE_ENDIAN_H

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "kafkascan does not support big-endian CPUs"
#endif

#endif /* KAFKASCAN_LITTLE_ENDIAN_H */
