// Two origins that read paths as programs in Node do: with the WHATWG URL parser, and as
// the bytes that came.
const http = require('http')

const handler = (path) =>
  path.startsWith('/api/v/') ? 'v' : path === '/login' ? 'login' : path === '/' ? 'root' : 'other'

const readers = [
  (target) => new URL(target, 'http://localhost').pathname,
  (target) => target.split('?')[0],
  (target) => decodeURIComponent(target.split('?')[0]),
  (target) => require('path').posix.normalize(decodeURIComponent(target.split('?')[0])),
]
process.argv.slice(2).forEach((port, i) => {
  http.createServer((req, res) => {
    try {
      res.end(handler(readers[i](req.url)))
    } catch {
      res.statusCode = 400
      res.end('refused')
    }
  }).listen(port, '127.0.0.1')
})
