/* A warmed process that forks handlers on order (SOCK 4). The Python runtime loads it as a library.
 *
 * The program is started in its own sandbox, with a socket to Snowmelt as descriptor 3. It loads
 * the data that its handlers share, reports that with snowmelt_ready, and calls snowmelt_serve,
 * which returns only in its children: each is then in a new sandbox, with its listening socket as
 * descriptor 3 and nothing else of the zygote but a copy of its memory.
 *
 * The process must have one thread when it calls snowmelt_serve. Neither function needs libc, so
 * both work on any system; see snowmelt_zygote.c for the order of the steps.
 */
#ifndef SNOWMELT_ZYGOTE_H
#define SNOWMELT_ZYGOTE_H

#include "snowmelt_constants.h"

/* Callbacks of the language's runtime around a fork; all but `fork` may be 0. */
struct snowmelt_hooks {
	int (*fork)(void); /* usually libc's, so that its atfork handlers run too */
	void (*before)(void);
	void (*after_in_parent)(void);
	void (*after_in_child)(void);
	/* In a handler that is set up and waits for its order: work of its first call that does not
	 * depend on the order. Descriptor 4 is reserved. */
	void (*warm_in_child)(void);
};

enum snowmelt_kind {
	SNOWMELT_HANDLER = SNOWMELT_KIND_HANDLER, /* serve descriptor 3 until killed */
	/* Read a packet from descriptor 3 with JSON that says what to load, load it, and call
	 * snowmelt_ready and snowmelt_serve again. */
	SNOWMELT_ZYGOTE = SNOWMELT_KIND_ZYGOTE,
};

/* The work of a child: entries that each begin with one letter and end with a zero byte:
 * SNOWMELT_ENTRY_ENVIRONMENT (name=value), SNOWMELT_ENTRY_IMPORT_PATH (a folder),
 * SNOWMELT_ENTRY_CALL (what to call). */
struct snowmelt_order {
	const char *entries;
	unsigned long length;
};

/* Reports that forks may be ordered. */
void snowmelt_ready(int control);

/* Forks on order, and reports how children end, until the other side closes the socket; then it
 * ends the process. Returns in each child. */
enum snowmelt_kind snowmelt_serve(int control, const struct snowmelt_hooks *hooks,
				  struct snowmelt_order *order);

#endif
