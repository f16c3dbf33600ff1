package postgres_test

import (
	"testing"

	"noncegate/nonce"
)

// TestTheViewOfAllocationsHasEveryHashAndTheNameOfTheHolder: a name where it is known,
// else the digits.
func TestTheViewOfAllocationsHasEveryHashAndTheNameOfTheHolder(t *testing.T) {
	url := migrated(t)
	s := openStore(t, url)
	c := handOut(acquire(t, s, alice, long, nonce.Need{Signer: "s"}), 3)
	one, two, three := nonce.TxHash{31: 1}, nonce.TxHash{31: 2}, nonce.TxHash{31: 3}
	c.Rows[1].TxHash, c.Rows[1].Holder = one, nonce.PrincipalOf("payouts")
	c.Rows[2].TxHash, c.Rows[2].Replaced, c.Rows[2].Holder = three, nonce.TxHashes("").Append(one).Append(two), 1<<63|1
	if !commit(t, s, alice, c) {
		t.Fatal("not applied")
	}
	if err := s.RememberNames(t.Context(), []string{"payouts"}); err != nil {
		t.Fatal(err)
	}
	var got string
	err := dial(t, url).QueryRow(t.Context(), `
		SELECT string_agg(concat_ws(' ', nonce, coalesce(tx_hash, '-'), coalesce(array_to_string(replaced, ','), '-'), coalesce(holder, '-')), E'\n' ORDER BY nonce)
		FROM signer_allocation`).Scan(&got)
	want := "0 - - -\n1 " + one.String() + " - payouts\n2 " + three.String() + " " + one.String() + "," + two.String() + " 8000000000000001"
	if err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}

// TestAMigrationThatWasInterruptedIsRunAgain: an index that was being built beside the
// nodes' writes is left behind invalid.
func TestAMigrationThatWasInterruptedIsRunAgain(t *testing.T) {
	url := migrated(t)
	conn := dial(t, url)
	execute(t, conn, `DROP INDEX signer_nonce_state_name`)
	execute(t, conn, `DELETE FROM noncegate_migration WHERE version_id = 8`)
	execute(t, conn, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'signer_nonce_allocation_notable'::regclass`)
	if n, err := openStore(t, url).Migrate(t.Context()); err != nil || n != 1 {
		t.Fatalf("%d migrations, %v", n, err)
	}
	var valid int
	err := conn.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_index WHERE indisvalid AND indexrelid IN ('signer_nonce_allocation_notable'::regclass, 'signer_nonce_state_name'::regclass)`).Scan(&valid)
	if err != nil || valid != 2 {
		t.Errorf("%d indexes are valid, %v", valid, err)
	}
}
