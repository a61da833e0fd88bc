// Reads {host, jobs: [{type, subject, schema, options, values}]} as JSON from stdin. Registers the
// schemas and prints, of each job, its values as the library encodes them, in hex, and as it
// decodes them again.
const { SchemaRegistry, COMPATIBILITY } = require('@kafkajs/confluent-schema-registry')

const main = async () => {
  const chunks = []
  for await (const chunk of process.stdin) chunks.push(chunk)
  const { host, jobs } = JSON.parse(Buffer.concat(chunks))
  const found = []
  for (const { type, subject, schema, references, options, values } of jobs) {
    const registry = new SchemaRegistry({ host }, options)
    const { id } = await registry.register(
      { type, schema, references },
      { subject, compatibility: COMPATIBILITY.NONE }
    )
    const written = []
    for (const value of values) {
      const encoded = await registry.encode(id, value)
      written.push({ value: encoded.toString('hex'), decoded: await registry.decode(encoded) })
    }
    found.push(written)
  }
  process.stdout.write(JSON.stringify(found))
}

main()
