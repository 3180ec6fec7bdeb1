package local

import "github.com/sbxhost/sbxhost/provider"

func (s *sandbox) Files() provider.FS { return nil }
