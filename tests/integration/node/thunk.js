// Scenarios for thunk-disque:  node thunk.js PORT QUEUE SCENARIO  prints what happened as one JSON object.
'use strict'

const disque = require('thunk-disque')
const { run } = require('./scenario')

function connect (port) {
  return disque.createClient(port, '127.0.0.1', { usePromise: true, authPass: process.env.PASSWORD || '' })
}

const scenarios = {
  async session (client, queue) {
    const job = await client.addjob(queue, 'to: ann', 0)
    const waiting = await client.qlen(queue)
    const taken = await client.getjob('FROM', queue)
    const acknowledged = await client.ackjob(job)
    return { job, waiting, taken, acknowledged, shown: await client.show(job) }
  },

  async options (client, queue) {
    const job = await client.addjob(queue, 'body', 500, 'REPLICATE', 1, 'DELAY', 30, 'RETRY', 20, 'TTL', 3600, 'MAXLEN', 10, 'ASYNC')
    return { shown: await client.show(job) }
  },

  // The producer acts only once the consumer is seen to wait.
  async blocking (client, queue, port) {
    const consumer = connect(port)
    const taking = consumer.getjob('FROM', queue)
    while ((await client.info()).blocked_clients !== '1') await new Promise((resolve) => setTimeout(resolve, 10))
    const job = await client.addjob(queue, 'at last', 0)
    const taken = await taking
    consumer.clientEnd()
    return { job, taken }
  },

  async failure (client, queue) {
    const job = await client.addjob(queue, 'body', 0, 'RETRY', 20)
    await client.getjob('FROM', queue)
    const nacked = await client.nack(job)
    const again = await client.getjob('WITHCOUNTERS', 'FROM', queue)
    const postponed = await client.working(job)
    const enqueued = await client.enqueue(job)
    const dequeued = await client.dequeue(job)
    const deleted = await client.deljob(job)
    const error = await client.ackjob('nonsense').then(() => null, (error) => error.code || error.message)
    const empty = await client.getjob('NOHANG', 'FROM', queue)
    const late = await client.getjob('TIMEOUT', 20, 'FROM', queue)
    const other = await client.addjob(queue, 'other', 0)
    return { job, nacked, again, postponed, enqueued, dequeued, deleted, error, empty, late, forgotten: await client.fastack(other) }
  },

  async looking (client, queue) {
    const job = await client.addjob(queue, 'body', 0)
    return {
      job,
      scanned: await client.qscan('BUSYLOOP', 'MINLEN', 1),
      jobs: await client.jscan('QUEUE', queue, 'BUSYLOOP'),
      peeked: await client.qpeek(queue, 1),
      stat: await client.qstat(queue),
      paused: await client.pause(queue, 'state'),
      ping: await client.ping(),
      time: await client.time(),
      info: await client.info(),
      hello: await client.hello()
    }
  }
}

run(async (port, queue, scenario) => {
  const client = connect(port)
  try {
    return await scenarios[scenario](client, queue, port)
  } finally {
    client.clientEnd()
  }
})
