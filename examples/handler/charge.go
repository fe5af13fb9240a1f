package handler

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/http"
	"strings"

	"github.com/oncepipe/oncepipe"
)

// Charge charges an order at the payment provider. The provider answers a key
// that it has seen with what it answered then, and does nothing. An empty key is none.
func Charge(ctx context.Context, client *http.Client, key string, o Order) error {
	body := strings.NewReader(fmt.Sprintf("order=%s&cents=%d", o.ID, o.Cents))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://pay.example/charges", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("charging %s: %s", o.ID, resp.Status)
	}
	return nil
}

// ChargeInTx charges before it commits the row, so that there is no row without
// a charge.
func ChargeInTx(db *sql.DB, client *http.Client) Handler {
	return chargeAndBook(db, client, func(Order) string { return "" })
}

// ChargeWithNewKey does so with a key for each attempt.
func ChargeWithNewKey(db *sql.DB, client *http.Client) Handler {
	return chargeAndBook(db, client, func(Order) string { return rand.Text() })
}

// ChargeWithKey does so with the order's key.
func ChargeWithKey(db *sql.DB, client *http.Client) Handler {
	return chargeAndBook(db, client, Order.Key)
}

func chargeAndBook(db *sql.DB, client *http.Client, key func(Order) string) Handler {
	return func(ctx context.Context, o Order) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		r, err := tx.ExecContext(ctx, "INSERT INTO orders (id, cents) VALUES (?, ?) ON CONFLICT DO NOTHING", o.ID, o.Cents)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		if err := Charge(ctx, client, key(o), o); err != nil {
			return err
		}
		return tx.Commit()
	}
}

// ChargeOnce is for a provider that takes no keys.
func ChargeOnce(store oncepipe.Store, client *http.Client) Handler {
	charge := oncepipe.OnceDo(store, "charge", func(ctx context.Context, o Order) error {
		return Charge(ctx, client, "", o)
	})
	return func(ctx context.Context, o Order) error { return charge(oncepipe.WithKey(ctx, o.Key()), o) }
}

// ChargeAtMostOnce leaves to a person what nobody knows the end of.
func ChargeAtMostOnce(store oncepipe.Store, client *http.Client) Handler {
	cfg := oncepipe.OnceConfig[Order, struct{}]{AtMostOnce: true}
	charge := oncepipe.DoWith(store, "charge", cfg, func(ctx context.Context, o Order) error {
		return Charge(ctx, client, "", o)
	})
	return func(ctx context.Context, o Order) error { return charge(oncepipe.WithKey(ctx, o.Key()), o) }
}
