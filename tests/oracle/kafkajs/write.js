// Reads batches as JSON from stdin and writes them as kafkajs encodes them to stdout.
// A record is {key, value, headers: {name: value}}; bytes are hex, null is null.
const Long = require('kafkajs/src/utils/long')
const Record = require('kafkajs/src/protocol/recordBatch/record/v0')
const { RecordBatch } = require('kafkajs/src/protocol/recordBatch/v0')

const bytes = hex => (hex === null ? null : Buffer.from(hex, 'hex'))

const encodeBatch = ({ baseOffset, firstTimestamp, compression, records }) =>
  RecordBatch({
    compression,
    firstOffset: Long.fromNumber(baseOffset),
    firstTimestamp,
    maxTimestamp: firstTimestamp + records.length - 1,
    lastOffsetDelta: records.length - 1,
    producerEpoch: -1,
    firstSequence: -1,
    records: records.map(({ key, value, headers }, index) =>
      Record({
        offsetDelta: index,
        timestampDelta: index,
        key: bytes(key),
        value: bytes(value),
        headers: Object.fromEntries(
          Object.entries(headers).map(([name, text]) => [name, bytes(text)])
        ),
      })
    ),
  })

const main = async () => {
  const chunks = []
  for await (const chunk of process.stdin) chunks.push(chunk)
  for (const batch of JSON.parse(Buffer.concat(chunks))) {
    process.stdout.write((await encodeBatch(batch)).buffer)
  }
}

main()
