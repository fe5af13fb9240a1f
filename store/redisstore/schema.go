package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/oncepipe/oncepipe"
)

// ErrSchema: the keys under the prefix are not those of this release.
var ErrSchema = errors.New("redisstore: keys are of another version")

// what the meta key says of the keys beside it.
var metaValues = []struct {
	name  string
	value int
}{
	{"schema", KeyVersion},
	{"keys", oncepipe.KeyFormat}, // another format would not find the keys that are there
}

// checkSchema begins the keys where there are none, and refuses those that were
// made by another release.
func (st *Store) checkSchema(ctx context.Context) error {
	var args []any
	for _, m := range metaValues {
		args = append(args, m.name, m.value)
	}
	cmd, err := st.run(ctx, st.scripts.open, []string{st.keys.meta}, args)
	if err != nil {
		return fmt.Errorf("read version: %w", err)
	}
	found, err := cmd.StringSlice()
	if err != nil {
		return fmt.Errorf("read version: %w", err)
	}
	versions := map[string]string{}
	for i := 0; i+1 < len(found); i += 2 {
		versions[found[i]] = found[i+1]
	}
	for _, m := range metaValues {
		if versions[m.name] != strconv.Itoa(m.value) {
			return fmt.Errorf("%w: version of %s is %q, want %d", ErrSchema, m.name, versions[m.name], m.value)
		}
	}
	return nil
}
