package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

const (
	accountsKey = "weir:{~behavior}"
	// accountsTimeout bounds an exchange. The answer may be several hundred kilobytes, so it
	// may take longer than a decision. No request waits for it.
	accountsTimeout = 250 * time.Millisecond
)

// Accounts is what nodes reported to each other.
type Accounts struct {
	Now    time.Time // by the store's clock
	Key    string    // by which all nodes name subjects
	Others int       // nodes that reported in the last three seconds
	Words  []string  // what each of them reported; only for a node that asks
}

// ExchangeAccounts reports what a node counted of clients or, if accounts is empty, fetches what the
// other nodes reported. key is the one that the node uses. The script may be sent again: a
// node's report replaces its previous one.
func (s *Store) ExchangeAccounts(ctx context.Context, node, key, accounts string) (*Accounts, error) {
	sh, err := s.shardFor(ctx, []byte(accountsKey))
	if err != nil {
		return nil, err
	}
	if sh.breaker.Open() {
		return nil, limiter.ErrBroken
	}
	ctx, cancel := context.WithTimeout(ctx, accountsTimeout)
	defer cancel()
	cmd := redis.NewStringSliceCmd(ctx, "evalsha", allScripts().accounts.sha, 1, accountsKey, sh.node.now(), nodeField+node, key, accounts)
	_ = sh.node.sender.Run(ctx, sh.client.WithTimeout(accountsTimeout), []redis.Cmder{cmd}, 0) // the command holds the error
	reply, err := cmd.Result()
	if err != nil {
		return nil, clean(err)
	}
	return readAccounts(reply)
}

func readAccounts(reply []string) (*Accounts, error) {
	if len(reply) < 3 {
		return nil, errForeign
	}
	now, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the script returned %q as the time", reply[0])
	}
	others, err := strconv.Atoi(reply[2])
	if err != nil {
		return nil, fmt.Errorf("the script returned %q as the number of nodes", reply[2])
	}
	return &Accounts{Now: time.UnixMicro(now), Key: reply[1], Others: others, Words: reply[3:]}, nil
}
