//go:build unix

package redistest

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestAClusterTakesKeysOfAllSlotsAndMovesOne(t *testing.T) {
	c, err := StartCluster(3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := testContext(t)
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Password: c.Servers[0].password})
	defer client.Close()
	for i := range 20 {
		if err := client.Set(ctx, strconv.Itoa(i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const slot = 5 // no key above is in it
	from, err := c.Owner(ctx, slot)
	if err != nil || from != 0 {
		t.Fatalf("slot %d is at %d, %v; want the first", slot, from, err)
	}
	if err := c.Move(ctx, slot, 0, 2); err != nil {
		t.Fatal(err)
	}
	if at, err := c.Owner(ctx, slot); at != 2 || err != nil {
		t.Errorf("slot %d is at %d, %v; want the third", slot, at, err)
	}
	if err := c.Await(ctx); err != nil {
		t.Error(err)
	}
}
