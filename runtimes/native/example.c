/* A native zygote: makes a table of primes, and forks handlers that look up numbers in it.
 *
 *     cc -O2 -o primes example.c snowmelt_zygote.c
 *
 * A handler reads a line with a number from each connection, and answers with the prime at that
 * index and with the variable GREETING of its own environment.
 */
#define _GNU_SOURCE
#include "snowmelt_zygote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LAST = 2000000 };

static char composite[LAST];
static int primes[LAST];
static int count;

static void make_table(void)
{
	for (long number = 2; number < LAST; number++) {
		if (composite[number])
			continue;
		primes[count++] = (int)number;
		for (long multiple = number * number; multiple < LAST; multiple += number)
			composite[multiple] = 1;
	}
}

/* The handler's environment is in its order; the zygote's must not be used. */
static void take_environment(const struct snowmelt_order *order)
{
	const char *end = order->entries + order->length;
	clearenv();
	for (const char *entry = order->entries; entry < end; entry += strlen(entry) + 1)
		if (entry[0] == SNOWMELT_ENTRY_ENVIRONMENT)
			putenv((char *)entry + 1);
}

static void serve(void)
{
	for (;;) {
		char answer[256], line[32] = "";
		const char *greeting = getenv("GREETING");
		int connection = accept(SNOWMELT_CHANNEL_FD, NULL, NULL);
		if (connection < 0)
			continue;
		if (read(connection, line, sizeof(line) - 1) > 0) {
			int place = atoi(line);
			int prime = place >= 0 && place < count ? primes[place] : -1;
			int length = snprintf(answer, sizeof(answer), "%d %s", prime,
					      greeting ? greeting : "");
			if (write(connection, answer, (size_t)length) < 0)
				perror("write");
		}
		close(connection);
	}
}

int main(void)
{
	const struct snowmelt_hooks hooks = {.fork = fork};
	struct snowmelt_order order;
	make_table();
	snowmelt_ready(SNOWMELT_CONTROL_FD);
	while (snowmelt_serve(SNOWMELT_CONTROL_FD, &hooks, &order) == SNOWMELT_ZYGOTE) {
		char what_to_load[4096];
		if (read(SNOWMELT_CONTROL_FD, what_to_load, sizeof(what_to_load)) <= 0)
			return 1;
		snowmelt_ready(SNOWMELT_CONTROL_FD);
	}
	take_environment(&order);
	serve();
}
