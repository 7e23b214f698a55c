// Run one scenario of a client from the command line: its result goes out as JSON, its error ends the process.
'use strict'

exports.run = function (play) {
  const [port, queue, scenario] = process.argv.slice(2)
  play(Number(port), queue, scenario).then(
    (result) => console.log(JSON.stringify(result)),
    (error) => {
      console.error(error)
      process.exitCode = 1
    }
  )
}
