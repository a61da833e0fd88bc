// Reads the records of a segment with franz-go's kmsg: `franz_go LOG ROUNDS` prints the median
// seconds of an iteration, which reuses one record, and of a table, which keeps all of a round.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const recordsPerTable = 1 << 16

// batches calls a function with the record bytes of each batch.
func batches(log []byte, visit func(batch *kmsg.RecordBatch)) {
	var batch kmsg.RecordBatch
	for len(log) >= 12 {
		size := 12 + int(binary.BigEndian.Uint32(log[8:]))
		if size > len(log) {
			return
		}
		if err := batch.ReadFrom(log[:size]); err != nil {
			panic(err)
		}
		visit(&batch)
		log = log[size:]
	}
}

// next reads one record; it returns the bytes after it.
func next(in []byte, record *kmsg.Record) []byte {
	length, used := binary.Varint(in)
	end := used + int(length)
	if err := record.ReadFrom(in[:end]); err != nil {
		panic(err)
	}
	return in[end:]
}

func iterate(log []byte) int64 {
	var record kmsg.Record
	var seen int64
	batches(log, func(batch *kmsg.RecordBatch) {
		in := batch.Records
		for range batch.NumRecords {
			in = next(in, &record)
			seen += batch.FirstOffset + int64(record.OffsetDelta) + batch.FirstTimestamp +
				record.TimestampDelta64 + int64(len(record.Key)+len(record.Value))
		}
	})
	return seen
}

func table(log []byte) int64 {
	var seen int64
	records := make([]kmsg.Record, 0, recordsPerTable)
	batches(log, func(batch *kmsg.RecordBatch) {
		in := batch.Records
		for range batch.NumRecords {
			records = append(records, kmsg.Record{})
			in = next(in, &records[len(records)-1])
		}
		if len(records) > recordsPerTable-int(batch.NumRecords) {
			seen += int64(len(records))
			records = make([]kmsg.Record, 0, recordsPerTable)
		}
	})
	return seen + int64(len(records))
}

func median(rounds int, read func([]byte) int64, log []byte) float64 {
	var times []float64
	for range rounds {
		start := time.Now()
		if read(log) == 0 {
			panic("no records")
		}
		times = append(times, time.Since(start).Seconds())
	}
	slices.Sort(times)
	return times[len(times)/2]
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	info, err := file.Stat()
	if err != nil {
		panic(err)
	}
	log, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	iterate(log)
	fmt.Println(median(rounds, iterate, log), median(rounds, table, log))
}
