package pgxstore

import (
	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// insertion is a statement that inserts records, and its arguments.
type insertion struct {
	text string
	args []any
}

// common is what new records mostly have in common: those of one stage's claims,
// and those of an effect for many keys.
type common struct {
	namespace      string
	state          oncepipe.State
	ready, expires record.Time
	owner          string
}

// commonOf returns what r may have in common with others. A record that has a
// past of its own, as one has that was claimed and completed at once, is not fresh.
func commonOf(r *record.Record) (c common, fresh bool) {
	fresh = r.Fence == 1 && r.Attempt == 1 && r.Takeovers == 0 && !r.TookOver &&
		r.Reason == "" && r.Payload == nil && r.Result == nil && !r.HasResult
	return common{r.Namespace, r.State, r.Ready, r.Expires, r.Owner}, fresh
}

// insertions returns what inserts recs, in their order: a statement for each run
// of records that are alike. An array for every column costs the server three
// times as much.
func (s *statements) insertions(recs []record.Record) (all []insertion) {
	for len(recs) > 0 {
		first, fresh := commonOf(&recs[0])
		n := 1
		for n < len(recs) {
			next, alsoFresh := commonOf(&recs[n])
			if fresh != alsoFresh || fresh && first != next {
				break
			}
			n++
		}
		if fresh {
			all = append(all, insertion{s.insertFresh, first.columnsOf(recs[:n])})
		} else {
			all = append(all, insertion{s.insert, columnsOf(recs[:n])})
		}
		recs = recs[n:]
	}
	return all
}

// columnsOf returns the arguments that make rows of fresh records: c for all of them,
// and an array for each column in which they differ.
func (c common) columnsOf(recs []record.Record) []any {
	n := len(recs)
	keys, claims, fps := make(array[[]byte], n), make(array[[]byte], n), make(array[[]byte], n)
	for i := range recs {
		r := &recs[i]
		keys[i], claims[i], fps[i] = []byte(r.Key), r.Claim[:], []byte(r.Fingerprint)
	}
	return []any{
		[]byte(c.namespace), int16(c.state), moment(c.ready), moment(c.expires), record.Text(c.owner),
		keys, claims, fps,
	}
}
