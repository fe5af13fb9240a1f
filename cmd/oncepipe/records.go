package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe"
)

// A page of prune: small enough to hold nobody up.
const pruneBatch = 1000

// idOf takes what people have seen in a list: it may be in stored form.
func idOf(namespace, key string) oncepipe.RecordID {
	hashed := func(s string) bool { return oncepipe.StoredID("", s).Stored }
	if !hashed(namespace) && !hashed(key) {
		return oncepipe.RecordID{Namespace: namespace, Key: key}
	}
	stored := func(s string) string {
		if hashed(s) {
			return s
		}
		return oncepipe.StorageKey(s)
	}
	return oncepipe.RecordID{Namespace: stored(namespace), Key: stored(key), Stored: true}
}

// find returns the records of a key: that of the namespace, or those of all
// namespaces that can be listed.
func (in *invocation) find(ctx context.Context, st oncepipe.Store) ([]oncepipe.Record, error) {
	key := in.args[0]
	if in.given["namespace"] {
		recs, err := st.Lookup(ctx, []oncepipe.RecordID{idOf(in.namespace, key)})
		if err != nil {
			return nil, err
		}
		if recs[0].State == oncepipe.StateAbsent {
			return nil, exitWith(exitNotFound, "there is no record of %q in %q", key, in.namespace)
		}
		return recs, nil
	}
	_, want := idOf("", key).StorageForm()
	var found []oncepipe.Record
	for _, state := range []oncepipe.State{oncepipe.StateFailed, oncepipe.StateUnknown, oncepipe.StateWaiting} {
		for r, err := range oncepipe.Records(ctx, st, oncepipe.Query{State: state}) {
			if err != nil {
				return nil, err
			}
			if _, has := r.StorageForm(); has == want && !strings.HasPrefix(r.Namespace, "%") { // a note of Redriven
				found = append(found, r)
			}
		}
	}
	if len(found) == 0 {
		return nil, exitWith(exitNotFound, "no failed, unknown or waiting record has the key %q; others are found with -namespace", key)
	}
	return found, nil
}

// one is find for commands that act on what they find.
func (in *invocation) one(ctx context.Context, st oncepipe.Store) (oncepipe.Record, error) {
	recs, err := in.find(ctx, st)
	if err != nil {
		return oncepipe.Record{}, err
	}
	if len(recs) > 1 {
		var names []string
		for _, r := range recs {
			names = append(names, printable(r.Namespace))
		}
		return oncepipe.Record{}, fmt.Errorf("%d records have the key %q; choose one with -namespace: %s", len(recs), in.args[0], strings.Join(names, ", "))
	}
	return recs[0], nil
}

func live(r oncepipe.Record) bool { return r.State == oncepipe.StateClaimed && r.Lease > 0 }

func liveError(r oncepipe.Record) error {
	return exitWith(exitLive, "%s is claimed by %s for %v more", printable(r.Key), printable(r.Owner), seconds(r.Lease))
}

func (in *invocation) show(ctx context.Context, st oncepipe.Store) error {
	recs, err := in.find(ctx, st)
	if err != nil {
		return err
	}
	return in.out.records(recs)
}

func (in *invocation) forget(ctx context.Context, st oncepipe.Store) error {
	r, err := in.one(ctx, st)
	if err != nil {
		return err
	}
	gone, err := st.Forget(ctx, []oncepipe.RecordID{r.RecordID}, in.force)
	if err != nil {
		return err
	}
	if !gone[0] {
		return fmt.Errorf("%w; -force forgets it all the same", liveError(r))
	}
	return in.out.forgotten(r.RecordID)
}

func (in *invocation) resolve(ctx context.Context, st oncepipe.Store) error {
	to, known := map[string]oncepipe.State{
		"done": oncepipe.StateCompleted, "retry": oncepipe.StateWaiting, "failed": oncepipe.StateFailed,
	}[in.args[1]]
	if !known {
		return exitWith(exitUsage, "%q is not one of done, retry and failed", in.args[1])
	}
	r, err := in.one(ctx, st)
	if err != nil {
		return err
	}
	if err := undecided(r); err != nil {
		return err
	}
	done, err := []bool(nil), error(nil)
	if to == oncepipe.StateWaiting && len(r.Payload) > 0 {
		done, err = oncepipe.Redrive(ctx, st, []oncepipe.Record{r})
	} else {
		done, err = st.Resolve(ctx, []oncepipe.Resolution{{
			RecordID: r.RecordID, Fence: r.Fence, To: to,
			Result: []byte(in.result), HasResult: in.given["result"],
		}})
	}
	if err != nil {
		return err
	}
	if !done[0] {
		return errActed(r)
	}
	return in.out.resolved(r.RecordID, to)
}

// undecided refuses records that nobody has to decide about.
func undecided(r oncepipe.Record) error {
	switch {
	case r.State == oncepipe.StateFailed, r.State == oncepipe.StateUnknown:
		return nil
	case live(r):
		return liveError(r)
	case r.State == oncepipe.StateClaimed:
		return fmt.Errorf("the lease of %s is over, and its next delivery takes it over or makes it unknown; forget makes the key new again", printable(r.Key))
	default:
		return fmt.Errorf("%s is %v, neither failed nor unknown", printable(r.Key), r.State)
	}
}

func errActed(r oncepipe.Record) error {
	return fmt.Errorf("somebody has acted on %s meanwhile: look again", printable(r.Key))
}

func (in *invocation) dead(ctx context.Context, st oncepipe.Store) error {
	list := in.out.list()
	n := 0
	for _, state := range []oncepipe.State{oncepipe.StateFailed, oncepipe.StateUnknown} {
		for r, err := range oncepipe.Records(ctx, st, oncepipe.Query{State: state, Namespace: in.namespace}) {
			if err != nil {
				return err
			}
			if in.limit > 0 && n == in.limit {
				return list.end()
			}
			n++
			if err := list.add(r); err != nil {
				return err
			}
		}
	}
	return list.end()
}

func (in *invocation) redrive(ctx context.Context, st oncepipe.Store) error {
	if in.args[0] == "all" {
		n, left, err := oncepipe.RedriveAll(ctx, st, in.namespace)
		if err != nil {
			return fmt.Errorf("%w (after %d were redriven)", err, n)
		}
		return in.out.redriven(n, left)
	}
	r, err := in.one(ctx, st)
	if err != nil {
		return err
	}
	switch {
	case r.State == oncepipe.StateUnknown:
		return fmt.Errorf("it is unknown whether the effect of %s happened: find out, and resolve it as done or retry", printable(r.Key))
	case r.State != oncepipe.StateFailed:
		return undecided(r)
	case len(r.Payload) == 0:
		return fmt.Errorf("the record of %s has no payload: it runs when its source delivers it again", printable(r.Key))
	}
	done, err := oncepipe.Redrive(ctx, st, []oncepipe.Record{r})
	if err != nil {
		return err
	}
	if !done[0] {
		return errActed(r)
	}
	return in.out.redriven(1, 0)
}

func (in *invocation) prune(ctx context.Context, st oncepipe.Store) error {
	total := 0
	for {
		batch := pruneBatch
		if in.limit > 0 {
			batch = min(batch, in.limit-total)
		}
		n, err := st.Prune(ctx, batch)
		if err != nil {
			return fmt.Errorf("%w (after %d were pruned)", err, total)
		}
		if total += n; n < batch || total == in.limit {
			return in.out.pruned(total)
		}
	}
}

func (in *invocation) stats(ctx context.Context, st oncepipe.Store) error {
	n, err := st.Count(ctx)
	if err != nil {
		return err
	}
	return in.out.stats(n)
}
