package record

import (
	"fmt"

	"github.com/oncepipe/oncepipe"
)

// CheckClaims refuses claims that can't be meant.
func CheckClaims(reqs []oncepipe.ClaimRequest) error {
	for _, r := range reqs {
		switch {
		case r.Key == "":
			return fmt.Errorf("claim: %w", oncepipe.ErrNoKey)
		case r.Claim == oncepipe.ClaimID{}:
			return fmt.Errorf("claim %.100q: no claim id", r.Key)
		case r.Lease <= 0:
			return fmt.Errorf("claim %.100q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return nil
}

// CheckExtensions refuses leases that aren't positive.
func CheckExtensions(reqs []oncepipe.Extension) error {
	for _, r := range reqs {
		if r.Lease <= 0 {
			return fmt.Errorf("extend %.100q: lease of %v is not positive", r.Key, r.Lease)
		}
	}
	return nil
}

// CheckReleases refuses states that a claim can't be released to.
func CheckReleases(reqs []oncepipe.ReleaseRequest) error {
	for _, r := range reqs {
		if r.To < oncepipe.ToWaiting || r.To > oncepipe.ToUnknown {
			return fmt.Errorf("release %.100q: no state to release to (%d)", r.Key, r.To)
		}
	}
	return nil
}

// CheckResolutions refuses states that a record can't be resolved to.
func CheckResolutions(reqs []oncepipe.Resolution) error {
	for _, r := range reqs {
		switch r.To {
		case oncepipe.StateCompleted, oncepipe.StateWaiting, oncepipe.StateFailed:
		default:
			return fmt.Errorf("resolve %.100q: can't be resolved to %v", r.Key, r.To)
		}
	}
	return nil
}

// CheckQuery refuses states that can't be listed, and returns the limit.
func CheckQuery(q oncepipe.Query) (limit int, err error) {
	switch q.State {
	case oncepipe.StateWaiting, oncepipe.StateFailed, oncepipe.StateUnknown:
	default:
		return 0, fmt.Errorf("list: records that are %v can't be listed", q.State)
	}
	if q.Limit <= 0 {
		return oncepipe.DefaultListLimit, nil
	}
	return q.Limit, nil
}
