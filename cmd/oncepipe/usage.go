package main

const usage = `Usage: oncepipe [flags] COMMAND

  show KEY                      the record of a key
  forget KEY                    remove it, so that the key is new again
  resolve KEY done|retry|failed settle an unknown or failed record by hand
  dead                          list failed and unknown records
  redrive KEY|all               let a failed record, or all of them, run again
  prune                         remove the records whose retention is over
  stats                         count the records by state
  migrate                       make the tables
  schema                        print the statements that make them

Without -namespace, KEY is looked for among the failed, unknown and waiting
records of all namespaces; what is claimed or completed is found with it only. A
key or namespace in the form "~sha256:…", as dead lists those that are long, is
taken as it is. Flags may stand behind the command; behind -- nothing is one.

Redriven records are delivered by the source oncepipe.Redriven of the service.
What has no payload can't be, and runs when its own source delivers it again.

Flags:
  -dsn DSN          the store; $ONCEPIPE_DSN when it isn't given
                      sqlite:FILE
                      postgres://USER:PASSWORD@HOST:PORT/DATABASE
                      mysql:USER:PASSWORD@tcp(HOST:PORT)/DATABASE
                      redis://HOST:PORT/NUMBER
  -namespace NS     Key(pipeline, step), such as shop/charge
  -prefix PREFIX    of the tables, oncepipe_ by default; of the keys in Redis, oncepipe
  -retention D      how long what is resolved or redriven is kept: that of the
                    service's store; 168h by default
  -result TEXT      with resolve done: the result to record, as the service encodes
                    it (JSON); without it none is, and a step that has one says so
  -limit N          with dead and prune: at most so many; 0, the default: all
  -force            with forget: a live claim as well. Its owner isn't stopped
  -json             print for programs: one object on a line, and nothing else.
                      show, dead     an object for each record: namespace, key, state,
                                     fence, attempt, takeovers, and what there is of
                                     owner, fingerprint, lease_seconds, wait_seconds,
                                     retention_seconds, reason, payload, result
                                     (payload_base64, result_base64: not UTF-8)
                      forget         namespace, key, forgotten
                      resolve        namespace, key, state
                      redrive        redriven, left (for want of a payload)
                      prune          pruned
                      stats          claimed, waiting, completed, failed, unknown
                      migrate        migrated
                      schema         schema

Exit codes: 0 good, 1 an error, 2 wrong usage, 3 there is no such record,
4 somebody holds a live claim on it.
`
