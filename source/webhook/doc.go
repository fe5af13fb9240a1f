// Package webhook makes a source of an HTTP endpoint: a request is a delivery,
// and its answer says what became of it.
//
//	src := webhook.New(webhook.Config{KeyHeader: "Idempotency-Key"})
//	http.Handle("/hooks", src)
//	hooks := oncepipe.From(p, "hooks", src)
//	fresh := oncepipe.Dedup(hooks, "dedup", func(r webhook.Request) string { return r.Key })
//
// # The answer
//
// A 2xx tells the sender that it may forget the request. It is given only when
// the pipeline has settled it:
//
//	Done, Duplicate, Filtered   200
//	Dead                        202: nobody will do it, but a person has it, and sending it again is of no use
//	Shed, Returned              503, Retry-After at least the settlement's delay
//
// Everything else is an answer that leaves the request with its sender:
//
//	400   the body can't be read, the key is missing, or Config.Key refused it
//	405   another method than Config.Methods
//	408   the body took longer than Config.ReadTimeout, or MaxHold
//	413   the body is larger than Config.MaxBody
//	503   with Retry-After: the pipeline is full, it is not running, or Config.MaxHold is over
//
// A sender that gets no answer, or a 503 while the work goes on, sends the
// request again. So put oncepipe.Dedup, or a stage that acts once per key, behind
// this source: the copy then joins the first one, and is answered when that is.
//
// # Admission
//
// A request is admitted when Receive hands it over. Until then it is the
// sender's: one that leaves, that waits longer than Config.AdmitWait, or that
// waits when the pipeline begins to drain, is withdrawn and never reaches the
// pipeline. The decision is one atomic step, so a request is either withdrawn or
// admitted, at whatever instant its sender leaves.
//
// After admission the work and the answer are two things. A sender that leaves
// cancels nothing; the pipeline settles the delivery as ever, and the source
// takes any settlement, since a sender that was not told 2xx still has the
// request.
//
// # Before, after and around
//
// The pipeline is taken to be running from the first call of Receive until that
// call's context ends, however long the pipeline is busy between two calls.
// Another Run opens the source again.
//
// To stop a service, end the context of Run first: from then on senders get 503,
// and when Run has returned every admitted request has its outcome. Then call
// http.Server.Shutdown, which waits for the answers to be written.
//
// The server's WriteTimeout counts from the request's header: where it is over,
// the answer is lost. Keep Config.MaxHold below it, and below the sender's own
// time limit.
//
// Nothing in this package starts a goroutine.
package webhook
