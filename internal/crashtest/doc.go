// Package crashtest kills a process that uses the host, at every step of what it
// does, and checks what the next process makes of it: exactly one sandbox per
// session, nothing orphaned, nothing foreign touched, no file lost. It holds tests
// only.
package crashtest
