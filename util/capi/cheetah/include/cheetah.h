/* Cheetah's flat interface: one-sided messaging whose messages a program pulls.
 *
 * Functions return a number: 0 or more is success, CHEETAH_ERROR or less an error, whose text
 * cheetah_error() returns. The library moves bytes and rings bells, and never calls the program's code:
 * the program pulls the invocations of other contexts with cheetah_next(). Cheetah/Cheetah.h does that
 * for C++.
 *
 * A context is used by one thread at a time. */

#ifndef CHEETAH_FLAT_H
#define CHEETAH_FLAT_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An operation failed. */
#define CHEETAH_ERROR (-1)
/* A context has failed; cheetah_error() names it. */
#define CHEETAH_LOST (-2)
/* The context has finalized. */
#define CHEETAH_FINALIZED (-3)
/* A wait has timed out. */
#define CHEETAH_TIMED_OUT (-4)

/* One context of a program. */
typedef struct cheetah_context cheetah_context;

/* The kind of a message: for a function, or for a handler. */
enum { CHEETAH_FUNCTION = 0, CHEETAH_CHANNEL = 1 };

/* A message that was pulled. Its bytes are aligned to 16, and may be read and changed until it is
 * released. */
typedef struct cheetah_message {
    int from;
    int kind;   /* CHEETAH_FUNCTION or CHEETAH_CHANNEL */
    int id;     /* the function, or the handler */
    int tag;    /* the tag, of a handler's message */
    void *bytes;
    size_t len;
    void *handle;
} cheetah_message;

/* Reserved memory in which a message is packed in place. */
typedef struct cheetah_parcel cheetah_parcel;

/* Starts the contexts of a program by its arguments and its environment, and removes its options from
 * the arguments. May return in several processes. */
int cheetah_open(int *argc, char ***argv, cheetah_context **context);
/* Frees a context. For the other contexts, one that has not finalized has failed. */
void cheetah_close(cheetah_context *context);
/* Makes one step of finalizing; returns 1 when all contexts have finalized. Pull messages between
 * steps. */
int cheetah_finalize_step(cheetah_context *context);
/* Waits until forked contexts have ended; an error names those that have failed. */
int cheetah_wait_for_children(cheetah_context *context);
int cheetah_is_finalized(const cheetah_context *context);

int cheetah_mycontext(const cheetah_context *context);
int cheetah_ncontexts(const cheetah_context *context);

/* Moves bytes and rings bells. */
int cheetah_progress(cheetah_context *context);
/* The next message: 1, or 0 if there is none. */
int cheetah_next(cheetah_context *context, cheetah_message *message);
void cheetah_release(cheetah_message *message);
/* Returns the oldest failure that this function has not reported, as an error; 0 if there is none. */
int cheetah_failure(cheetah_context *context);
/* Returns the oldest failure that neither cheetah_failure() nor cheetah_hopeless() has reported, as an
 * error; 0 if there is none. Call it after a barrier and before each cheetah_finalize_step(): a
 * finalized context has forgotten its failures. */
int cheetah_unreported_failure(cheetah_context *context);
/* Returns an error if a wait for this bell, or with NULL for a barrier, cannot succeed; or else 0. The
 * call clears the error of the bell. */
int cheetah_hopeless(cheetah_context *context, int *bell);
/* Parks the thread until there may be an event, for at most this many milliseconds. */
int cheetah_rest(cheetah_context *context, int millis);
/* Returns the default timeout of waits in milliseconds (CHEETAH_TIMEOUT, such as 30s); 0 for none. */
int cheetah_limit(const cheetah_context *context);
/* Returns CHEETAH_TIMED_OUT. The text names the contexts that do not respond, or that have not entered
 * the barrier. */
int cheetah_timed_out(cheetah_context *context, const char *what, int millis, int is_barrier);

/* Puts and gets; remote addresses, also those of bells, are addresses in the other context. Bells may
 * be NULL. */
int cheetah_put(cheetah_context *context, int to, void *remote, const void *local, size_t len,
                int *local_bell, int *remote_bell);
int cheetah_get(cheetah_context *context, int of, const void *remote, void *local, size_t len,
                int *local_bell, int *remote_bell);

/* Registers a function and returns its number. The first barrier compares the name, or with NULL the
 * offset of the code in its file, with those of the other contexts. */
int cheetah_register(cheetah_context *context, const char *name, void (*code)(void));
/* Registers a handler and returns its number. */
int cheetah_channel(cheetah_context *context, const char *name);
/* Reports to the caller of a function that it is not registered. */
int cheetah_no_function(cheetah_context *context, int caller, int id);

/* Invokes a function of another context. Without a bell, the bytes are copied; with one, they must stay
 * unchanged until it has rung. */
int cheetah_ainvoke(cheetah_context *context, int to, int id, const void *bytes, size_t len,
                    int *bell);
/* Sends to a handler of another context; the bytes are copied. */
int cheetah_send(cheetah_context *context, int to, int channel, int tag, const void *bytes,
                 size_t len);

/* Reserves memory for a message: special memory, if there is some. */
int cheetah_reserve(cheetah_context *context, int to, size_t len, cheetah_parcel **parcel,
                    void **room);
/* Sends the packed message and frees the parcel. */
int cheetah_commit(cheetah_context *context, cheetah_parcel *parcel, int kind, int id, int tag);
/* Frees a parcel without sending it. */
void cheetah_abandon(cheetah_context *context, cheetah_parcel *parcel);

/* Allocates special memory, which other contexts read and write by loads and stores; NULL if there is
 * none. */
void *cheetah_allocate(cheetah_context *context, size_t len);
/* Frees special memory. */
int cheetah_free(cheetah_context *context, void *memory);

int cheetah_barrier_begin(cheetah_context *context);
/* Returns 1 when all contexts have entered the barrier; call cheetah_progress() until then. */
int cheetah_barrier_done(cheetah_context *context);

/* Returns the number of copies of payload that this context has made or caused. */
unsigned long cheetah_copies(const cheetah_context *context);

/* Returns the text of the last error of this thread. */
const char *cheetah_error(void);

#ifdef __cplusplus
}
#endif

#endif
