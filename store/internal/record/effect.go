package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncepipe/oncepipe"
)

// Result is what is recorded of an effect's result.
type Result struct {
	Bytes []byte
	Has   bool
}

// Outcome is what became of one item of an effect. Known says that its key was
// complete before, and Result is what was recorded then.
type Outcome struct {
	Result
	Known bool
	Err   error
}

// Effect is what is done for some keys in one transaction.
type Effect[N any] struct {
	Step         string // for errors
	IDs          []oncepipe.RecordID
	Fingerprints []string // one for each id

	// Run acts for the items at these places, in their order, and returns their
	// results. An error undoes the transaction, and is an item's alone when there was but one.
	Run func(ctx context.Context, tx N, items []int) ([]Result, error)
}

// effect is an Effect under way.
type effect[N any] struct {
	Effect[N]
	ctx    context.Context // of its caller
	ids    []ID
	first  []int      // the first place with the same id
	owners []place[N] // of the items, where they are several effects'
	out    []Outcome
}

func (c *Core[N]) newEffect(ctx context.Context, e Effect[N]) *effect[N] {
	f := &effect[N]{
		Effect: e, ctx: ctx, ids: make([]ID, len(e.IDs)),
		first: make([]int, len(e.IDs)), out: make([]Outcome, len(e.IDs)),
	}
	seen := make(map[ID]int, len(e.IDs))
	for i, id := range e.IDs {
		f.ids[i] = Stored(id)
		if first, again := seen[f.ids[i]]; again {
			f.first[i] = first
			continue
		}
		f.first[i], seen[f.ids[i]] = i, i
	}
	return f
}

// places returns the places of the distinct ids, in the order of the ids.
func (f *effect[N]) places() []int {
	var places []int
	for i, first := range f.first {
		if first == i {
			places = append(places, i)
		}
	}
	slices.SortFunc(places, func(a, b int) int { return CompareIDs(f.ids[a], f.ids[b]) })
	return places
}

// repeat gives items whose id occurred before what became of the first.
func (f *effect[N]) repeat() {
	for i, first := range f.first {
		if first == i {
			continue
		}
		f.out[i] = f.out[first]
		f.out[i].Known = f.out[i].Err == nil
		if f.out[i].Known && differ(f.Fingerprints[first], f.Fingerprints[i]) {
			f.out[i] = Outcome{Err: oncepipe.ErrMismatch}
		}
	}
}

func (f *effect[N]) fail(places []int, err error) {
	for _, i := range places {
		f.out[i] = Outcome{Err: err}
	}
}

// Once makes e happen for those of its keys that are new, and says what became
// of each. An error of Run's is returned as it is, since it may carry an
// instruction for the stage.
func (c *Core[N]) Once(ctx context.Context, e Effect[N]) []Outcome {
	f := c.newEffect(ctx, e)
	places := f.places()
	if err := c.ready(ctx); err != nil {
		c.refuse(f, places, err)
	} else if unlock, err := c.lockEffects(ctx); err != nil {
		c.refuse(f, places, err)
	} else {
		defer unlock()
		c.settle(ctx, f, places)
	}
	f.repeat()
	return f.out
}

// refuse gives items an error that is not the function's own.
func (c *Core[N]) refuse(f *effect[N], places []int, err error) {
	for _, i := range places {
		step := f.Step
		if f.owners != nil {
			step = f.owners[i].effect.Step
		}
		f.out[i] = Outcome{Err: fmt.Errorf("%s: step %q: %w", c.cfg.Name, step, err)}
	}
}

// lockEffects takes the writer's token where there can be but one.
func (c *Core[N]) lockEffects(ctx context.Context) (unlock func(), err error) {
	if !c.cfg.OneWriter {
		return func() {}, nil
	}
	return lock(ctx, c.changes.writer)
}

// maxRuns is how often a function is run in one call, when its transaction meets others.
const maxRuns = 10

// errNothingNew undoes a transaction in which there is nothing to do.
var errNothingNew = errors.New("no key is new")

// settle makes f happen for the items at these places. A function that fails for
// several of them is run for fewer, so that in the end only the item fails that
// makes it fail.
func (c *Core[N]) settle(ctx context.Context, f *effect[N], places []int) {
	t := &trial[N]{effect: f, core: c, ctx: ctx, places: places}
	err := t.try()
	switch {
	case err == nil, errors.Is(err, errNothingNew):
	case t.decided && len(t.fresh) > 1 && ctx.Err() == nil && (t.failed && !c.again(err) && !oncepipe.IsWholeBatch(err) || !t.failed && c.refusedBy(err)):
		c.settleParts(ctx, f, t.fresh, err)
	case t.failed:
		f.fail(t.fresh, err)
	default:
		c.refuse(f, t.open(), because(ctx, err))
	}
}

// settleParts goes on with fewer items after err.
func (c *Core[N]) settleParts(ctx context.Context, f *effect[N], places []int, err error) {
	var each *oncepipe.BatchError
	if !errors.As(err, &each) || len(each.Errs) != len(places) {
		half := len(places) / 2
		c.settle(ctx, f, places[:half])
		c.settle(ctx, f, places[half:])
		return
	}
	var rest []int
	for n, i := range places {
		if each.Errs[n] != nil {
			f.fail([]int{i}, each.Errs[n])
		} else {
			rest = append(rest, i)
		}
	}
	switch len(rest) {
	case 0:
	case len(places): // it failed, and blames nobody
		f.fail(rest, err)
	default:
		c.settle(ctx, f, rest)
	}
}

// trial is a transaction, and its repetitions.
type trial[N any] struct {
	*effect[N]
	core   *Core[N]
	ctx    context.Context
	places []int

	claims  []oncepipe.ClaimID // one for every transaction; the last is the present one's
	runs    int
	fresh   []int    // of places: the function runs for these
	recs    []Record // theirs
	decided bool     // it is known which these are
	failed  bool     // the function did
}

func (t *trial[N]) claim() oncepipe.ClaimID { return t.claims[len(t.claims)-1] }

// open returns the places of which nothing is known when the transaction failed.
func (t *trial[N]) open() []int {
	if t.decided {
		return t.fresh
	}
	return t.places
}

func (t *trial[N]) try() error {
	return Patiently(t.ctx, t.core.cfg.Busy, func() (bool, error) {
		t.claims = append(t.claims, oncepipe.NewClaimID())
		t.decided, t.failed = false, false
		first := make([]Record, len(t.places))
		for n, i := range t.places {
			first[n] = completedBy(t.ids[i], t.claim(), t.Fingerprints[i], t.core.cfg.Rules)
		}
		err := t.core.db.TransactWith(t.ctx, first, func(tx Tx[N], inserted []ID) error { return t.act(tx, first, inserted) })
		if lost := (CommitError{}); errors.As(err, &lost) && !t.failed {
			landed, lookErr := t.landed()
			if landed {
				return false, nil
			}
			if lookErr != nil {
				return false, fmt.Errorf("%w, and it isn't known whether it happened: %w", err, lookErr)
			}
		}
		return t.runs < maxRuns && t.core.again(err) && !oncepipe.IsPermanent(err), err
	})
}

// act is what happens in the transaction.
func (t *trial[N]) act(tx Tx[N], first []Record, inserted []ID) error {
	if len(inserted) == len(t.places) {
		t.fresh, t.recs, t.decided = t.places, first, true
	} else if err := t.sift(tx); err != nil {
		return err
	}
	if len(t.fresh) == 0 {
		return errNothingNew
	}
	t.runs++
	t.failed = true // also when it doesn't return
	results, err := t.Run(inTx(t.effect.ctx, t.core.identity()), tx.Native(), t.fresh)
	if err != nil {
		return err
	}
	t.failed = false
	return t.keep(tx, results)
}

// sift finds out which items are new. Those that somebody holds or has done
// have their outcome then; for others the record is taken over.
func (t *trial[N]) sift(tx Tx[N]) error {
	ids := make([]ID, len(t.places))
	for n, i := range t.places {
		ids[n] = t.ids[i]
	}
	loaded, err := tx.Load(t.ctx, ids)
	if err != nil {
		return err
	}
	there := byID(loaded)
	var taken []Record
	t.fresh, t.recs = nil, nil
	for _, i := range t.places {
		r, ok := there[t.ids[i]]
		if !ok {
			return errComesAndGoes
		}
		if r.Claim != t.claim() { // else it was inserted in this transaction
			err := r.takeBy(t.claim(), t.Fingerprints[i], t.core.cfg.Rules)
			if errors.Is(err, errKnown) {
				// Perhaps by this call, where a commit came later than its error.
				mine := slices.Contains(t.claims, r.Claim)
				t.out[i] = Outcome{Known: !mine, Result: Result{r.Result, r.HasResult}}
				continue
			}
			if err != nil {
				t.core.refuse(t.effect, []int{i}, err)
				continue
			}
			taken = append(taken, r)
		}
		t.fresh, t.recs = append(t.fresh, i), append(t.recs, r)
	}
	t.decided = true
	if len(taken) == 0 {
		return nil
	}
	return tx.Write(t.ctx, taken)
}

// keep writes the results that there are.
func (t *trial[N]) keep(tx Tx[N], results []Result) error {
	var with []Record
	for n, i := range t.fresh {
		t.out[i] = Outcome{Result: results[n]}
		r := t.recs[n]
		if r.SetResult(results[n].Bytes, results[n].Has, t.core.cfg.Rules); r.HasResult {
			with = append(with, r)
		}
	}
	if len(with) == 0 {
		return nil
	}
	return tx.Write(t.ctx, with)
}

// lookTimeout is how long the outcome of a commit is looked for, when the
// context that it had may be over.
const lookTimeout = 5 * time.Second

// landed tells whether the effect is committed.
func (t *trial[N]) landed() (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), lookTimeout)
	defer cancel()
	id := t.ids[t.fresh[0]]
	found, err := t.core.read(ctx, []ID{id})
	r := found[id]
	return err == nil && r.State == oncepipe.StateCompleted && slices.Contains(t.claims, r.Claim), err
}

// because adds to err that ctx is over, where the database only says that the
// transaction was ended.
func because(ctx context.Context, err error) error {
	if over := ctx.Err(); over != nil && !errors.Is(err, over) {
		return fmt.Errorf("%w: %w", over, err)
	}
	return err
}
