package integration

import (
	"errors"
	"sync"
	"testing"

	"github.com/oncepipe/oncepipe"
	"github.com/oncepipe/oncepipe/store/sqlstore"
)

func TestSchema(t *testing.T) {
	db := openDB(t, dsn(newFile(t)), 0)
	ctx := t.Context()
	if _, err := sqlstore.Open(ctx, db, sqlstore.Config{}); !errors.Is(err, sqlstore.ErrSchema) {
		t.Errorf("no tables: %v", err)
	}
	text, err := sqlstore.Schema(sqlstore.SQLite, "byhand_")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mustExec(t, db, text)
	}
	byHand, err := sqlstore.Open(ctx, db, sqlstore.Config{Prefix: "byhand_"})
	if err != nil {
		t.Fatal(err)
	}
	defer byHand.Close()
	other := openStore(t, db, sqlstore.Config{})
	for _, st := range []*sqlstore.Store{byHand, other} { // they don't see each other's records
		answers, err := st.Claim(ctx, []oncepipe.ClaimRequest{newRequest("k")})
		if err != nil || answers[0].Status != oncepipe.ClaimAcquired {
			t.Errorf("%v, %v", answers, err)
		}
	}
	for _, name := range []string{"schema", "keys"} {
		mustExec(t, db, "UPDATE oncepipe_meta SET value = value + 1 WHERE name = ?", name)
		if _, err := sqlstore.Open(ctx, db, sqlstore.Config{}); !errors.Is(err, sqlstore.ErrSchema) {
			t.Errorf("version of %s: %v", name, err)
		}
		if err := sqlstore.Migrate(ctx, db, sqlstore.Config{}); !errors.Is(err, sqlstore.ErrSchema) {
			t.Errorf("version of %s: %v", name, err)
		}
		mustExec(t, db, "UPDATE oncepipe_meta SET value = value - 1 WHERE name = ?", name)
	}
}

func TestMigrate_ByManyAtOnce(t *testing.T) {
	file := newFile(t)
	var wg sync.WaitGroup
	for range 8 {
		db := openDB(t, dsn(file, "busy_timeout(1000)"), 0)
		wg.Go(func() {
			if err := sqlstore.Migrate(t.Context(), db, sqlstore.Config{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
