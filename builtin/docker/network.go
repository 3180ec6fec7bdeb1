package docker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"

	"github.com/sbxhost/sbxhost/provider"
)

// networks are the bridges, one per owner, on which sandboxes with network:
// default are. Containers on one cannot reach each other. They are found by their
// labels and used by their ids: an engine does not keep two of one name from being
// made at the same moment.
type networks struct {
	mu     sync.Mutex
	owners map[string]*ownerNetwork
}

// ownerNetwork keeps the network from being made twice, and from being removed
// while a container joins it.
type ownerNetwork struct {
	use   sync.RWMutex
	make  chan struct{} // a lock that can be waited for with a context
	leave chan struct{} // another, for who leaves
}

func (n *networks) init() { n.owners = map[string]*ownerNetwork{} }

func (n *networks) of(owner string) *ownerNetwork {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.owners[owner]
	if l == nil {
		l = &ownerNetwork{make: make(chan struct{}, 1), leave: make(chan struct{}, 1)}
		n.owners[owner] = l
	}
	return l
}

const optionICC = "com.docker.network.bridge.enable_icc"

func networkName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "sbxhost-net-" + hex.EncodeToString(sum[:8])
}

func networkLabels(owner string) map[string]string {
	return map[string]string{provider.LabelOwner: owner, labelKind: kindNetwork}
}

// join makes the owner's network when it is not there, and returns its id. Until
// release is called it is not removed by this process.
func (p *Provider) join(ctx context.Context, owner string) (id string, release func(), err error) {
	l := p.networks.of(owner)
	l.use.RLock()
	id, late, err := p.ensureNetwork(ctx, l, owner)
	if err == nil {
		return id, l.use.RUnlock, nil
	}
	l.use.RUnlock()
	if late != nil {
		go func() {
			if n := <-late; n.err == nil {
				after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
				defer cancel()
				_ = p.leave(after, owner)
			}
		}()
	}
	return "", nil, err
}

// madeNetwork is what came of making one.
type madeNetwork struct {
	id  string
	err error
}

// ensureNetwork finds or makes the owner's network. An engine goes on with what its
// caller gave up, so then too the answer is waited for, and what was made is the
// caller's to leave. One that comes later still comes by late.

func (p *Provider) ensureNetwork(ctx context.Context, l *ownerNetwork, owner string) (id string, late <-chan madeNetwork, err error) {
	name := networkName(owner)
	select {
	case l.make <- struct{}{}:
	case <-ctx.Done():
		return "", nil, ctxProblem(opCreate, name, ctx.Err(), provider.AppliedNo)
	}
	done := make(chan madeNetwork, 1)
	go func() {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		id, err := p.findOrMake(after, name, owner)
		if err != nil {
			err = engineProblem(after, opCreate, name, err, provider.AppliedNo)
		}
		<-l.make // before anybody hears of it: who leaves needs it
		done <- madeNetwork{id, err}
	}()
	select {
	case n := <-done:
		return n.id, nil, n.err
	case <-ctx.Done():
	}
	select {
	case n := <-done:
		return n.id, nil, n.err
	case <-time.After(p.latePatience):
		return "", done, ctxProblem(opCreate, name, ctx.Err(), provider.AppliedUnknown)
	}
}

func (p *Provider) findOrMake(ctx context.Context, name, owner string) (string, error) {
	list, err := p.ownNetworks(ctx, owner)
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		return list[0].ID, nil
	}
	n, err := p.e.NetworkCreate(ctx, name, network.CreateOptions{Driver: "bridge", Labels: networkLabels(owner), Options: map[string]string{optionICC: "false"}})
	return n.ID, err
}

// ownNetworks lists the owner's networks, the oldest first.
func (p *Provider) ownNetworks(ctx context.Context, owner string) ([]network.Summary, error) {
	list, err := p.e.NetworkList(ctx, network.ListOptions{Filters: filters.NewArgs(
		filters.Arg("label", provider.LabelOwner+"="+owner), filters.Arg("label", labelKind+"="+kindNetwork))})
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(n network.Summary) bool {
		return n.Name != networkName(owner) || n.Driver != "bridge" || n.Options[optionICC] != "false"
	})
	slices.SortFunc(list, func(a, b network.Summary) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// leave removes the owner's network when nothing is on it any more. One that
// somebody joins at this moment stays, and goes with that one.
func (p *Provider) leave(ctx context.Context, owner string) error {
	l := p.networks.of(owner)
	// Who leaves at the same time may have seen us there still: then it is for us to
	// look again.
	select {
	case l.leave <- struct{}{}:
		defer func() { <-l.leave }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !l.use.TryLock() {
		return nil
	}
	defer l.use.Unlock()
	select {
	case l.make <- struct{}{}:
		defer func() { <-l.make }()
	default:
		return nil
	}
	list, err := p.ownNetworks(ctx, owner)
	if err != nil {
		return err
	}
	for _, n := range list {
		// A stopped container is on it too.
		on, err := p.e.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("network", n.ID))})
		if err != nil {
			return err
		}
		if len(on) > 0 {
			continue
		}
		// An engine forbids it while something is on the network.
		err = p.e.NetworkRemove(ctx, n.ID)
		if err != nil && !gone(err) && !cerrdefs.IsPermissionDenied(err) {
			return err
		}
	}
	return nil
}
