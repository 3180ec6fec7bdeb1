package plugin

import "context"

// creating admits one create per session at a time: the second one finds what the
// first one made. leave must be called.
func (p *Plugin) creating(ctx context.Context, session string) (leave func(), err error) {
	for {
		p.mu.Lock()
		busy := p.inCreate[session]
		if busy == nil {
			done := make(chan struct{})
			p.inCreate[session] = done
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.inCreate, session)
				p.mu.Unlock()
				close(done)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
