package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// SchemaVersion is the version of the tables that this release works with.
const SchemaVersion = 1

// ErrSchema: the tables are missing, or not those of this release. See Migrate.
var ErrSchema = errors.New("sqlstore: tables are missing or of another version")

// what meta says of the tables beside it.
var metaValues = []struct {
	name  string
	value int
}{
	{"schema", SchemaVersion},
	{"keys", oncepipe.KeyFormat}, // another format would not find the keys that are there
}

// Schema returns the statements that make the tables, each ended by a
// semicolon, for those who create them by other means than Migrate. They do
// nothing where the tables are there. An empty prefix is Config.Prefix's default.
func Schema(d Dialect, prefix string) (string, error) {
	cfg := Config{Dialect: d, Prefix: prefix}
	if err := cfg.check(); err != nil {
		return "", err
	}
	return strings.Join(cfg.schema(), ";\n") + ";\n", nil
}

func (c Config) schema() []string {
	d := dialects[c.Dialect]
	var all []string
	for _, text := range d.schema {
		all = append(all, d.render(text, c.Prefix, c.Clock))
	}
	for _, m := range metaValues {
		text := fmt.Sprintf("%s {meta} (name, value) VALUES ('%s', %d) %s", d.insert, m.name, m.value, d.ignore)
		all = append(all, d.render(text, c.Prefix, c.Clock))
	}
	return all
}

// Migrate makes the tables of a store that has none. Where they are there it
// changes nothing; the error is ErrSchema when they are of another version.
// Several processes may do it at once.
func Migrate(ctx context.Context, db *sql.DB, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	d := &database{pool: db, cfg: cfg, dialect: dialects[cfg.Dialect]}
	err := record.Patiently(ctx, cfg.BusyTimeout, func() (bool, error) {
		err := d.transact(ctx, func(tx *sql.Tx) error {
			for _, text := range cfg.migration() {
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return err
				}
			}
			return nil
		})
		return d.Again(err), err
	})
	if err != nil {
		return fmt.Errorf("sqlstore: migrate: %w", err)
	}
	return d.checkSchema(ctx)
}

// migration is the schema, behind a lock where the database needs one.
func (c Config) migration() []string {
	d := dialects[c.Dialect]
	if d.migrateLock == "" {
		return c.schema()
	}
	return append([]string{d.render(d.migrateLock, c.Prefix, c.Clock)}, c.schema()...)
}

// checkSchema refuses tables that were made for another release.
func (d *database) checkSchema(ctx context.Context) error {
	var n int
	exists := d.dialect.render(d.dialect.tableExists, d.cfg.Prefix, d.cfg.Clock)
	if err := d.pool.QueryRowContext(ctx, exists, d.cfg.Prefix+"meta").Scan(&n); err != nil {
		return fmt.Errorf("sqlstore: look for tables: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("%w: there is no %smeta", ErrSchema, d.cfg.Prefix)
	}
	rows, err := d.pool.QueryContext(ctx, d.dialect.render("SELECT name, value FROM {meta}", d.cfg.Prefix, d.cfg.Clock))
	if err != nil {
		return fmt.Errorf("sqlstore: read version: %w", err)
	}
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var name string
		var value int
		if err := rows.Scan(&name, &value); err != nil {
			return fmt.Errorf("sqlstore: read version: %w", err)
		}
		found[name] = value
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("sqlstore: read version: %w", err)
	}
	for _, m := range metaValues {
		if found[m.name] != m.value {
			return fmt.Errorf("%w: version of %s is %d, want %d", ErrSchema, m.name, found[m.name], m.value)
		}
	}
	return nil
}
