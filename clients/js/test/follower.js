// Follows answers of a real server, and says each step on a line: for tests that kill what it follows
// (tests/cluster/test_live_through_kills.py). node follower.js URL VIEW ID…
import { connect } from "../headrace.js"

const [url, view, ...ids] = process.argv.slice(2)
const db = connect(url)
for (const id of ids.map(Number))
  db.live(view, { id }).subscribe(({ rows, state, error }, changes) => {
    if (state === "failed") throw error
    if (changes.length) console.log(JSON.stringify({ id, changes, rows }))
  })
