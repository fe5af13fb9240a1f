package pgxstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// A statement for each run of records that are alike, and none is out of order.
func TestInsertions_AreRuns(t *testing.T) {
	claim := func(ns, key, owner string, lease time.Duration) record.Record {
		return record.ClaimNew(oncepipe.ClaimRequest{
			RecordID: oncepipe.RecordID{Namespace: ns, Key: key}, Claim: oncepipe.NewClaimID(),
			Owner: owner, Lease: lease, Fingerprint: "fingerprint of " + key,
		})
	}
	recs := []record.Record{
		claim("a", "1", "me", time.Minute),
		claim("a", "2", "me", time.Minute),
		claim("a", "3", "you", time.Minute),
		claim("a", "4", "you", time.Hour),
		claim("b", "1", "you", time.Hour),
		claim("b", "2", "you", time.Hour),
		claim("b", "3", "you", time.Hour),
		claim("b", "4", "you", time.Hour),
		claim("b", "5", "you", time.Hour),
	}
	for i, change := range map[int]func(*record.Record){
		5: func(r *record.Record) { r.Payload = []byte{} },
		6: func(r *record.Record) { r.Attempt = 0 },
		7: func(r *record.Record) { r.State = oncepipe.StateCompleted },
	} {
		change(&recs[i])
	}
	sql := (&Config{}).statements()
	var got []string
	var keys []string
	for _, ins := range sql.insertions(recs) {
		column := ins.args[1] // of the keys, where each column is an array
		if ins.text == sql.insertFresh {
			column = ins.args[5]
		}
		run := column.(array[[]byte])
		got = append(got, fmt.Sprint(len(run), ins.text == sql.insertFresh))
		for _, key := range run {
			keys = append(keys, string(key))
		}
	}
	if want := []string{"2 true", "1 true", "1 true", "1 true", "2 false", "1 true", "1 true"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var want []string
	for _, r := range recs {
		want = append(want, r.Key)
	}
	if !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

// What a fresh record may not have is what its statement says by itself.
func TestInsertions_FreshRecordsHaveNoPast(t *testing.T) {
	for name, change := range map[string]func(*record.Record){
		"fence":     func(r *record.Record) { r.Fence++ },
		"attempt":   func(r *record.Record) { r.Attempt-- },
		"takeovers": func(r *record.Record) { r.Takeovers++ },
		"took over": func(r *record.Record) { r.TookOver = true },
		"reason":    func(r *record.Record) { r.Reason = "r" },
		"payload":   func(r *record.Record) { r.Payload = []byte{} },
		"result":    func(r *record.Record) { r.Result = []byte{} },
		"no bytes":  func(r *record.Record) { r.HasResult = true },
	} {
		r := record.Record{State: oncepipe.StateClaimed, Fence: 1, Attempt: 1}
		if _, fresh := commonOf(&r); !fresh {
			t.Errorf("%+v is not fresh", r)
		}
		change(&r)
		if _, fresh := commonOf(&r); fresh {
			t.Errorf("%s: %+v is fresh", name, r)
		}
	}
}
