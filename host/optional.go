package host

import (
	"github.com/sbxhost/sbxhost/provider"
)

// optional finds an optional interface of a sandbox beneath its wrappers. What
// it returns is not wrapped: calls go through bounded and the boundary.
func optional[T any](sb provider.Sandbox) (T, bool) {
	for {
		w, ok := sb.(interface{ unwrap() provider.Sandbox })
		if !ok {
			break
		}
		sb = w.unwrap()
	}
	t, ok := sb.(T)
	return t, ok
}
