/* Leaves out single steps of a child's set-up, for the tests that show what each one prevents
 * (crates/sandbox/tests/escape/children.rs).
 *
 * Without SNOWMELT_WEAKEN, which only the feature `weaken` of the sandbox defines, no step can be
 * left out: the conditions are constants. With it, the variable of the same name in the zygote's
 * environment lists the steps, separated by commas.
 */
#ifndef SNOWMELT_WEAKEN_H
#define SNOWMELT_WEAKEN_H

#ifdef SNOWMELT_WEAKEN

#include "snowmelt_internals.h"
#include "syscalls.h"

static char weaken_environment[1 << 16];
static long weaken_length;

/* `proc` is the zygote's /proc. */
static void read_steps_to_leave_out(int proc)
{
	long file = SYS(openat, proc, "self/environ", O_CLOEXEC, 0);
	if (file < 0)
		return;
	weaken_length = SYS(read, file, weaken_environment, sizeof(weaken_environment) - 1);
	SYS(close, file);
}

/* The rest of `text` after `begin`, or 0. */
static const char *weaken_after(const char *text, const char *begin)
{
	while (*begin)
		if (*text++ != *begin++)
			return 0;
	return text;
}

static int is_left_out(const char *step)
{
	const char *end = weaken_environment + weaken_length;
	for (const char *entry = weaken_environment; entry < end; entry++) {
		const char *names = weaken_after(entry, "SNOWMELT_WEAKEN=");
		while (names && *names) {
			const char *rest = weaken_after(names, step);
			if (rest && (*rest == ',' || !*rest))
				return 1;
			while (*names && *names++ != ',')
				;
		}
		while (*entry)
			entry++;
	}
	return 0;
}

#else

#define read_steps_to_leave_out(proc) ((void)(proc))
#define is_left_out(step) 0

#endif

#endif
