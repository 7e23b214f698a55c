// One session of a Redis client for Node:  node redisclients.js PORT QUEUE CLIENT [PROTOCOL]  prints the three replies as JSON:
// add a job, get it, acknowledge it.  Without a protocol the client has its defaults.
'use strict'

const { run } = require('./scenario')

const HOST = '127.0.0.1'

async function session (call, queue) {
  const job = await call('ADDJOB', queue, 'to: ann', '0')
  const taken = await call('GETJOB', 'FROM', queue)
  return [job, taken, await call('ACKJOB', job)]
}

// ioredis, and its fork of Valkey.
async function ioredis (Client, port, queue, protocol) {
  const client = new Client({ host: HOST, port, ...(protocol && { protocol: Number(protocol) }) })
  try {
    return await session((...words) => client.call(...words), queue)
  } finally {
    await client.quit()
  }
}

async function nodeRedis (name, port, queue, protocol) {
  const client = require(name).createClient({ url: `redis://${HOST}:${port}`, ...(protocol && { RESP: Number(protocol) }) })
  client.on('error', (error) => { throw error })
  await client.connect()
  try {
    return await session((...words) => client.sendCommand(words), queue)
  } finally {
    await client.close()
  }
}

async function glide (port, queue, protocol) {
  const { GlideClient, ProtocolVersion } = require('@valkey/valkey-glide')
  const chosen = protocol && { protocol: ProtocolVersion[`RESP${protocol}`] }
  const client = await GlideClient.createClient({ addresses: [{ host: HOST, port }], ...chosen })
  try {
    return await session((...words) => client.customCommand(words), queue)
  } finally {
    client.close()
  }
}

const clients = {
  ioredis: (...words) => ioredis(require('ioredis'), ...words),
  iovalkey: (...words) => ioredis(require('iovalkey'), ...words),
  'node-redis-5': (...words) => nodeRedis('node-redis-5', ...words),
  'node-redis-6': (...words) => nodeRedis('node-redis-6', ...words),
  'valkey-glide': glide
}

run((port, queue, client) => clients[client](port, queue, process.argv[5]))
