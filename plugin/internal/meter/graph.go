package meter

import (
	"github.com/sbxhost/sbxhost/plugin/internal/wasmfile"
)

// frames decides which functions count call depth, and by how much: those on a
// cycle of the call graph. Functions off every cycle can be on the stack only
// once each; if even so they could fill half the budget, every function that
// calls another counts.
func frames(m *wasmfile.Module) []uint32 {
	g := newGraph(m)
	cyclic := g.cycles()
	out := make([]uint32, len(m.Functions))
	straight := uint64(0)
	for i := range m.Functions {
		f := &m.Functions[i]
		w := frame(m, f)
		switch {
		case cyclic[i]:
			out[i] = w
		case f.Calls > 0:
			straight += uint64(w)
		}
	}
	if straight > MaxDepth/2 && g.deepest(cyclic) > MaxDepth/2 {
		for i := range m.Functions {
			if m.Functions[i].Calls > 0 {
				out[i] = frame(m, &m.Functions[i])
			}
		}
	}
	return out
}

// frame estimates the native stack one call takes, in units. A compiler gives
// spilled values slots of their own, so what a frame can hold grows with the
// code; two bytes per byte of code is above what was seen of real programs.
func frame(m *wasmfile.Module, f *wasmfile.Function) uint32 {
	t := &m.Types[f.Type]
	bytes := 96 + 8*(uint64(f.Locals)+uint64(len(t.Results))) + 2*uint64(f.Code.End-f.Code.Start)
	return uint32(min((bytes+DepthUnit-1)/DepthUnit, maxFrame))
}

// graph is the call graph. Nodes are the defined functions, then one per
// distinct type: an indirect call goes to its type's node, which leads to every
// function of that type that a reference can be made to.
type graph struct {
	m     *wasmfile.Module
	edges [][]uint32
}

func newGraph(m *wasmfile.Module) *graph {
	n := uint32(len(m.Functions))
	g := &graph{m: m, edges: make([][]uint32, int(n)+len(m.Types))}
	canon := canonical(m.Types)
	imports := uint32(len(m.Imports))
	for i := range m.Functions {
		f := &m.Functions[i]
		if f.Calls == 0 {
			continue
		}
		m.Walk(f, func(in *wasmfile.Instr) {
			switch in.Op {
			case wasmfile.OpCall:
				if in.A >= imports {
					g.edges[i] = append(g.edges[i], in.A-imports)
				}
			case wasmfile.OpCallIndirect:
				g.edges[i] = append(g.edges[i], n+canon[in.A])
			}
		})
	}
	if !m.Uses.Indirect {
		return g
	}
	seen := make([]bool, n)
	reach := func(f int64) {
		if f < int64(imports) || seen[f-int64(imports)] {
			return
		}
		d := uint32(f) - imports
		seen[d] = true
		t := n + canon[m.Functions[d].Type]
		g.edges[t] = append(g.edges[t], d)
	}
	// References come from element segments, global initialisers, and from
	// ref.func, which may only name functions that occur in one of these or
	// among the exports.
	for _, e := range m.Elements {
		for _, f := range e.Funcs {
			reach(f)
		}
	}
	for _, e := range m.Exports {
		if e.Kind == wasmfile.ExternFunc {
			reach(int64(e.Index))
		}
	}
	for _, gl := range m.Globals {
		if raw := m.Bytes[gl.Init.Start:gl.Init.End]; wasmfile.Op(raw[0]) == wasmfile.OpRefFunc {
			reach(int64(uleb(raw[1:])))
		}
	}
	return g
}

// canonical maps each type index to the first equal one.
func canonical(types []wasmfile.FuncType) []uint32 {
	first := make(map[string]uint32, len(types))
	out := make([]uint32, len(types))
	for i, t := range types {
		k := t.String()
		if j, ok := first[k]; ok {
			out[i] = j
		} else {
			first[k] = uint32(i)
			out[i] = uint32(i)
		}
	}
	return out
}

// cycles finds the nodes on a cycle: strongly connected components of more than
// one node, or with an edge to itself. Tarjan's algorithm with its own stack.
func (g *graph) cycles() []bool {
	const unseen = 0
	n := len(g.edges)
	index := make([]uint32, n)
	low := make([]uint32, n)
	onStack := make([]bool, n)
	cyclic := make([]bool, n)
	var stack []uint32
	type visit struct{ node, edge uint32 }
	var path []visit
	next := uint32(1)
	for root := range g.edges {
		if index[root] != unseen {
			continue
		}
		path = append(path[:0], visit{node: uint32(root)})
		for len(path) > 0 {
			v := &path[len(path)-1]
			u := v.node
			if v.edge == 0 && index[u] == unseen {
				index[u], low[u] = next, next
				next++
				stack = append(stack, u)
				onStack[u] = true
			}
			if int(v.edge) < len(g.edges[u]) {
				t := g.edges[u][v.edge]
				v.edge++
				switch {
				case t == u:
					cyclic[u] = true
				case index[t] == unseen:
					path = append(path, visit{node: t})
				case onStack[t]:
					low[u] = min(low[u], index[t])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				p := path[len(path)-1].node
				low[p] = min(low[p], low[u])
			}
			if low[u] != index[u] {
				continue
			}
			at := len(stack) - 1
			for stack[at] != u {
				at--
			}
			for _, t := range stack[at:] {
				onStack[t] = false
				cyclic[t] = cyclic[t] || len(stack)-at > 1
			}
			stack = stack[:at]
		}
	}
	return cyclic
}

// deepest is the largest sum of frames along a path that avoids cycles, in
// units; cut off at MaxDepth.
func (g *graph) deepest(cyclic []bool) uint64 {
	const (
		fresh = iota
		open
		done
	)
	state := make([]byte, len(g.edges))
	sum := make([]uint64, len(g.edges))
	type visit struct{ node, edge uint32 }
	var path []visit
	best := uint64(0)
	for root := range g.edges {
		if state[root] != fresh || cyclic[root] {
			continue
		}
		path = append(path[:0], visit{node: uint32(root)})
		for len(path) > 0 {
			v := &path[len(path)-1]
			u := v.node
			state[u] = open
			if int(v.edge) < len(g.edges[u]) {
				t := g.edges[u][v.edge]
				if !cyclic[t] && state[t] == fresh {
					path = append(path, visit{node: t})
					continue
				}
				v.edge++
				if !cyclic[t] {
					sum[u] = max(sum[u], sum[t])
				}
				continue
			}
			if int(u) < len(g.m.Functions) {
				sum[u] += uint64(frame(g.m, &g.m.Functions[u]))
			}
			state[u] = done
			best = max(best, sum[u])
			path = path[:len(path)-1]
		}
	}
	return best
}
