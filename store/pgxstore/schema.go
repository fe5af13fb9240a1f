package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/internal/record"
)

// SchemaVersion is the version of the tables that this release works with.
const SchemaVersion = 1

// ErrSchema: the tables are missing, or not those of this release. See Migrate.
var ErrSchema = errors.New("pgxstore: tables are missing or of another version")

// metaValues is what meta says of the tables beside it.
var metaValues = []struct {
	name  string
	value int
}{
	{"schema", SchemaVersion},
	{"keys", oncepipe.KeyFormat}, // another format would not find the keys that are there
}

// The tables are those of sqlstore, which may work on them at the same time.
var tables = []string{
	`CREATE TABLE IF NOT EXISTS {records} (
	ns         bytea NOT NULL,
	k          bytea NOT NULL,
	state      smallint NOT NULL,
	claim      bytea NOT NULL,
	fence      bigint NOT NULL,
	attempt    integer NOT NULL,
	takeovers  integer NOT NULL,
	took_over  smallint NOT NULL,
	ready_at   bigint,
	expires_at bigint,
	owner      text,
	fp         bytea,
	reason     text,
	payload    bytea,
	has_result smallint NOT NULL,
	result     bytea,
	PRIMARY KEY (ns, k)
)`,
	`CREATE INDEX IF NOT EXISTS {records}_expires ON {records} (expires_at) WHERE expires_at IS NOT NULL`,
	`CREATE INDEX IF NOT EXISTS {records}_listed ON {records} (state, ns, k) WHERE state IN (2, 4, 5)`,
	`CREATE TABLE IF NOT EXISTS {meta} (
	name  text NOT NULL PRIMARY KEY,
	value integer NOT NULL
)`,
}

// Schema returns the statements that make the tables, each ended by a
// semicolon, for those who create them by other means than Migrate. They do
// nothing where the tables are there. An empty prefix is Config.Prefix's default.
func Schema(prefix string) (string, error) {
	cfg := Config{Prefix: prefix}
	if err := cfg.check(); err != nil {
		return "", err
	}
	return cfg.schema(), nil
}

func (c Config) schema() string {
	all := tables
	for _, m := range metaValues {
		all = append(all[:len(all):len(all)],
			fmt.Sprintf("INSERT INTO {meta} (name, value) VALUES ('%s', %d) ON CONFLICT DO NOTHING", m.name, m.value))
	}
	return c.render(strings.Join(all, ";\n") + ";\n")
}

// Migrate makes the tables of a store that has none. Where they are there it
// changes nothing; the error is ErrSchema when they are of another version.
// Several processes may do it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
	}
	d := newDatabase(pool, cfg)
	err := record.Patiently(ctx, cfg.BusyTimeout, func() (bool, error) {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			// IF NOT EXISTS alone fails for the second of two that come at the same time.
			if _, err := tx.Exec(ctx, cfg.render("SELECT pg_advisory_xact_lock(hashtext('{records}'))")); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, cfg.schema())
			return err
		})
		return d.Again(err), err
	})
	if err != nil {
		return fmt.Errorf("pgxstore: migrate: %w", err)
	}
	return d.checkSchema(ctx)
}

// checkSchema refuses tables that were made for another release.
func (d *database) checkSchema(ctx context.Context) error {
	var there bool
	err := d.pool.QueryRow(ctx, "SELECT to_regclass($1::text) IS NOT NULL", d.cfg.Prefix+"meta").Scan(&there)
	if err != nil {
		return fmt.Errorf("pgxstore: look for tables: %w", err)
	}
	if !there {
		return fmt.Errorf("%w: there is no %smeta", ErrSchema, d.cfg.Prefix)
	}
	found := map[string]int{}
	rows, err := d.pool.Query(ctx, d.cfg.render("SELECT name, value FROM {meta}"))
	if err != nil {
		return fmt.Errorf("pgxstore: read version: %w", err)
	}
	var name string
	var value int
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		found[name] = value
		return nil
	})
	if err != nil {
		return fmt.Errorf("pgxstore: read version: %w", err)
	}
	for _, m := range metaValues {
		if found[m.name] != m.value {
			return fmt.Errorf("%w: version of %s is %d, want %d", ErrSchema, m.name, found[m.name], m.value)
		}
	}
	return nil
}
