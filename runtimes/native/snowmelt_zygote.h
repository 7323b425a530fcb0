/* A warmed process that forks handlers on order (SOCK 4), in any language that can fork.
 *
 * The program is started in a sandbox of its own, with a socket to Snowmelt as descriptor 3. It
 * loads what its handlers share, says so with snowmelt_ready, and calls snowmelt_serve, which
 * returns only in its children: each is by then alone in a new sandbox, with its listening socket
 * as descriptor 3 and nothing else of the zygote's but its memory.
 *
 * The process must have one thread when it calls snowmelt_serve. Neither function needs libc, so
 * both work on any system; see snowmelt_zygote.c for the order of what is done.
 */
#ifndef SNOWMELT_ZYGOTE_H
#define SNOWMELT_ZYGOTE_H

#define SNOWMELT_CONTROL_FD 3
#define SNOWMELT_CHANNEL_FD 3

/* What the runtime of the language wants to have done around a fork; all but `fork` may be 0. */
struct snowmelt_hooks {
	int (*fork)(void); /* usually libc's, so that its own handlers run too */
	void (*before)(void);
	void (*after_in_parent)(void);
	void (*after_in_child)(void);
	/* In a handler that has landed and has to wait until it is asked for: whatever its first
	 * call needs that does not depend on what it is to do. Descriptor 4 is not its own. */
	void (*warm_in_child)(void);
};

enum snowmelt_kind {
	SNOWMELT_HANDLER = 0, /* serve descriptor 3 until killed */
	/* Read a packet from descriptor 3, which says in JSON what to load, load it, and call
	 * snowmelt_ready and snowmelt_serve again. */
	SNOWMELT_ZYGOTE = 1,
};

/* What a child is to do: entries that each begin with one letter and end with a zero byte:
 * e environment (name=value), p folder to put on the import path, c what to call. */
struct snowmelt_order {
	const char *entries;
	unsigned long length;
};

/* Says that forks may be ordered. */
void snowmelt_ready(int control);

/* Forks on order, and says how children end, until the other side closes the socket; then it ends
 * the process. Returns in each child. */
enum snowmelt_kind snowmelt_serve(int control, const struct snowmelt_hooks *hooks,
				  struct snowmelt_order *order);

#endif
