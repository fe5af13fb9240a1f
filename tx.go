package oncepipe

// TxConfig adjusts the Tx functions of the stores that are in a database, such
// as sqlstore.TxWith. The zero value is what Tx uses.
type TxConfig[A, B any] struct {
	// Fingerprint tells payloads of one key apart: another one than the first is
	// ErrMismatch. nil: payloads are not compared.
	Fingerprint func(v A) string

	// Encode and Decode turn results into what the store keeps and back. Default:
	// JSON. For a B of struct{} nothing is kept.
	Encode func(B) ([]byte, error)
	Decode func([]byte) (B, error)

	// Shared lets the function run in one transaction with those of other callers
	// who come at the same time, one after the other, so that one commit serves all.
	// When one of them fails the transaction is undone and each runs again by itself.
	// A function that leaves an error of the database unreported must not share,
	// since in PostgreSQL it spoils the others' transaction. When the caller's context
	// ends, the call returns, and a function that has begun may go on for the
	// moment that it takes to heed that; so it must not write to what the caller may
	// use again. Batches never share.
	Shared bool
}
