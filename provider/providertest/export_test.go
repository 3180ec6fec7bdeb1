package providertest

// ProofValues are the values that one check of the kit gives.
func ProofValues() map[string]string {
	values := map[string]string{}
	for _, p := range proofs() {
		values[p.name] = p.value
	}
	return values
}
