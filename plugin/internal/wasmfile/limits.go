package wasmfile

// Limits bound what a module may declare before anything is compiled. They
// exist because a compiler's time and memory are not linear in module size: a
// few kilobytes can keep one busy for minutes. A zero field takes the default.
type Limits struct {
	ModuleBytes      uint64 // whole file; default 16 MiB
	Types            uint64 // function types; default 4,096
	Params           uint64 // parameters of one type; default 64
	Results          uint64 // results of one type; default 16
	Imports          uint64 // default 128
	Exports          uint64 // default 1,024
	Functions        uint64 // defined ones; default 65,536
	FunctionBytes    uint64 // one body; default 192 KiB
	CodeBytes        uint64 // all bodies; default 12 MiB
	Locals           uint64 // of one function with its parameters; default 1,024
	Blocks           uint64 // blocks, loops and ifs of one function; default 4,096
	Nesting          uint64 // depth of them; default 2,048
	Branches         uint64 // branch edges of one function; default 32,768
	LocalsTimesJoins uint64 // Function.Work of one function; default 65,536
	TotalWork        uint64 // of all functions, see Function.cost; default 6,000,000
	BranchTable      uint64 // targets of one br_table; default 16,384
	Tables           uint64 // default 4
	TableElements    uint64 // minimum of one table; default 65,536
	MemoryPages      uint64 // minimum, 64 KiB each; default 512 (32 MiB)
	Globals          uint64 // default 1,024
	ElementSegments  uint64 // default 1,024
	Elements         uint64 // in all element segments; default 131,072
	DataSegments     uint64 // default 131,072
	DataBytes        uint64 // in all data segments; default 16 MiB
	PassiveBytes     uint64 // in one passive data segment, copied in one go; default 1 MiB
	CustomSections   uint64 // default 64
	NameBytes        uint64 // one import, export or section name; default 512
}

// DefaultLimits returns the defaults: a Go program with encoding/json uses
// less than a third of each.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	def := func(v *uint64, d uint64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.ModuleBytes, 16<<20)
	def(&l.Types, 4096)
	def(&l.Params, 64)
	def(&l.Results, 16)
	def(&l.Imports, 128)
	def(&l.Exports, 1024)
	def(&l.Functions, 1<<16)
	def(&l.FunctionBytes, 192<<10)
	def(&l.CodeBytes, 12<<20)
	def(&l.Locals, 1024)
	def(&l.Blocks, 4096)
	def(&l.Nesting, 2048)
	def(&l.Branches, 1<<15)
	def(&l.LocalsTimesJoins, 1<<16)
	def(&l.TotalWork, 6_000_000)
	def(&l.BranchTable, 1<<14)
	def(&l.Tables, 4)
	def(&l.TableElements, 1<<16)
	def(&l.MemoryPages, 512)
	def(&l.Globals, 1024)
	def(&l.ElementSegments, 1024)
	def(&l.Elements, 1<<17)
	def(&l.DataSegments, 1<<17)
	def(&l.DataBytes, 16<<20)
	def(&l.PassiveBytes, 1<<20)
	def(&l.CustomSections, 64)
	def(&l.NameBytes, 512)
	return l
}
