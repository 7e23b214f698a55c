// A job by TLS with the `redis` of npm:  node tls.js PORT QUEUE CA [KEY CERT]  prints what happened as one JSON object.
'use strict'

const fs = require('fs')
const redis = require('redis')

const [port, queue, ca, key, cert] = process.argv.slice(2)
const own = key ? { key: fs.readFileSync(key), cert: fs.readFileSync(cert) } : {}
const client = redis.createClient({
  host: '127.0.0.1',
  port: Number(port),
  tls: { ca: fs.readFileSync(ca), ...own },
  retry_strategy: () => undefined // it is tried once
})
const send = (...words) => new Promise((resolve, reject) => {
  client.send_command(words[0], words.slice(1), (error, answer) => error ? reject(error) : resolve(answer))
})

client.on('error', (error) => {
  console.error(error)
  process.exit(1)
})

async function play () {
  const job = await send('ADDJOB', queue, 'to: ann', 0)
  const taken = await send('GETJOB', 'FROM', queue)
  const acknowledged = await send('ACKJOB', job)
  return { job, taken, acknowledged }
}

play().then(
  (seen) => {
    console.log(JSON.stringify(seen))
    client.end(false)
  },
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
