/* A small libnvidia-ml.so.1: what the agent needs of NVML to find, probe and watch its GPUs, and nothing else.
 *
 * It is steered by files in the folder that TESSERA_STUB_DIR names:
 *   xid<i>        holds a number: GPU i raises that XID, once, and the file is removed
 *   epoch<i>      its content changes: GPU i was reset, handles from before are dead
 *   mig<i>        0 or 1: GPU i can MIG, and its mode is off or on; without the file it cannot
 *   instances<i>  how many MIG instances there are while the mode is on
 * With TESSERA_STUB_OTHER_SET set, an event goes to a set in which another GPU was registered: some libraries give it to
 * whichever set is waited on. It names its device either way.
 * TESSERA_STUB_STEP_MS is how often a wait for events looks for such a file (10), at least 1.
 *
 * Everything that is missing here is "function not found" to the agent, as with a driver that is older than a feature.
 * Other libraries can be had of the same source: -DWITHOUT_EVENTS has no event functions, -DTWIN_UUIDS says the same UUID
 * of all GPUs, -DGPUS=8 has as many of them (2), -DSMALLER_EACH_PROCESS says less memory to each process that loads it, which it counts in
 * the file `processes0` of that folder.
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_stub.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15 };
#ifndef GPUS
#define GPUS 2
#endif
enum { MAX_EPOCHS = 64, MAX_INSTANCES = 7, XID_EVENT = 8, LEVEL_SYSTEM = 50, ARCH_AMPERE = 7, BRAND_NVIDIA = 14 };

/* instance 0 is the GPU itself, n its nth MIG device. */
typedef struct { int index, epoch, instance; } *Device;
typedef struct { Device devices[GPUS]; } *EventSet;  /* by index; NULL where that GPU is not in the set */
typedef struct { char legacy[16]; unsigned domain, bus, device, pci_device, pci_subsystem; char bus_id[32]; } PciInfo;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct {
    unsigned multiprocessors, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mib;
} Attributes;
typedef struct { Device device; unsigned long long type, data; unsigned gi, ci; } EventData;

static int initialised;
static struct { int index, epoch, instance; } handles[GPUS][MAX_EPOCHS], mig_handles[GPUS][MAX_INSTANCES];

static int number_in(const char *name, int index, int fallback, int consume)
{
    char path[4096];
    int value = fallback;
    const char *folder = getenv("TESSERA_STUB_DIR");
    snprintf(path, sizeof path, "%s/%s%d", folder ? folder : ".", name, index);
    FILE *file = fopen(path, "r");
    if (!file)
        return fallback;
    if (fscanf(file, "%d", &value) != 1)
        value = fallback;
    fclose(file);
    /* Several may look at once: it is theirs who could remove it. */
    if (consume && value != fallback && unlink(path) != 0)
        return fallback;
    return value;
}

static int epoch_of(int index) { return number_in("epoch", index, 0, 0) % MAX_EPOCHS; }

static int check(Device device)
{
    if (!initialised)
        return UNINITIALIZED;
    return device->epoch == epoch_of(device->index) ? SUCCESS : GPU_IS_LOST;
}

#define CHECK(device)            \
    do {                         \
        int code = check(device); \
        if (code)                \
            return code;         \
    } while (0)

#ifdef SMALLER_EACH_PROCESS
static int process;

__attribute__((constructor)) static void count_process(void)
{
    char path[4096];
    const char *folder = getenv("TESSERA_STUB_DIR");
    process = number_in("processes", 0, 0, 0) + 1;
    snprintf(path, sizeof path, "%s/processes0", folder ? folder : ".");
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%d", process);
        fclose(file);
    }
}
#endif

int nvmlInitWithFlags(unsigned flags) { (void)flags; initialised = 1; return SUCCESS; }
int nvmlShutdown(void) { initialised = 0; return SUCCESS; }

const char *nvmlErrorString(int code)
{
    return code == GPU_IS_LOST ? "GPU is lost" : code == UNINITIALIZED ? "Uninitialized" : "Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "999.1");
    return initialised ? SUCCESS : UNINITIALIZED;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = GPUS;
    return initialised ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device)
{
    if (!initialised)
        return UNINITIALIZED;
    if (index >= GPUS)
        return INVALID_ARGUMENT;
    int epoch = epoch_of(index);
    handles[index][epoch].index = index;
    handles[index][epoch].epoch = epoch;
    *device = (Device)&handles[index][epoch];
    return SUCCESS;
}

static void uuid_of(int index, char *text, unsigned length)
{
#ifdef TWIN_UUIDS
    index = 0;
#endif
    snprintf(text, length, "GPU-5707b000-0000-0000-0000-%012d", index);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    char own[64];
    for (int index = 0; index < GPUS; index++) {
        uuid_of(index, own, sizeof own);
        if (!strcmp(own, uuid))
            return nvmlDeviceGetHandleByIndex_v2(index, device);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned length)
{
    CHECK(device);
    if (device->instance)
        snprintf(text, length, "MIG-5707b000-0000-0000-%04d-%012d", device->index, device->instance);
    else
        uuid_of(device->index, text, length);
    return SUCCESS;
}

int nvmlDeviceGetName(Device device, char *text, unsigned length) { CHECK(device); snprintf(text, length, "Stub GPU"); return SUCCESS; }
int nvmlDeviceGetMinorNumber(Device device, unsigned *minor) { CHECK(device); *minor = device->index; return SUCCESS; }
int nvmlDeviceGetBrand(Device device, unsigned *brand) { CHECK(device); *brand = BRAND_NVIDIA; return SUCCESS; }
int nvmlDeviceGetArchitecture(Device device, unsigned *arch) { CHECK(device); *arch = ARCH_AMPERE; return SUCCESS; }
int nvmlDeviceGetSerial(Device device, char *text, unsigned length) { (void)text; (void)length; CHECK(device); return NOT_SUPPORTED; }

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    CHECK(device);
    *major = 8;
    *minor = 6;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device device, Memory *memory)
{
    CHECK(device);
    memory->total = device->instance ? 3ULL << 30 : 24ULL << 30;
#ifdef SMALLER_EACH_PROCESS
    memory->total -= (unsigned long long)process << 20;
#endif
    memory->used = 0;
    memory->free = memory->total;
    return SUCCESS;
}

static void pci_of(int index, PciInfo *info)
{
    memset(info, 0, sizeof *info);
    info->bus = index + 1;
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", info->bus);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
}

int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) { CHECK(device); pci_of(device->index, info); return SUCCESS; }

/* One NVLink between the two. */
int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active)
{
    CHECK(device);
    *active = 1;
    return link == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *info)
{
    CHECK(device);
    pci_of(1 - device->index, info);
    return link == 0 ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned *level)
{
    CHECK(one);
    CHECK(other);
    *level = LEVEL_SYSTEM;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) { (void)sensor; CHECK(device); *celsius = 41; return SUCCESS; }
int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) { CHECK(device); *milliwatts = 75000; return SUCCESS; }

int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates)
{
    CHECK(device);
    rates->gpu = rates->memory = 0;
    return SUCCESS;
}

/* MIG: the mode, and instances of one slice. Profiles and placements are not known here. */
int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    CHECK(device);
    int mode = number_in("mig", device->index, -1, 0);
    *current = *pending = mode == 1;
    return mode < 0 ? NOT_SUPPORTED : SUCCESS;
}

static int instances_of(int index)
{
    return number_in("mig", index, 0, 0) == 1 ? number_in("instances", index, 0, 0) : 0;
}

int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) { CHECK(device); *count = MAX_INSTANCES; return SUCCESS; }

int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned number, Device *mig)
{
    CHECK(device);
    if ((int)number >= instances_of(device->index))
        return NOT_FOUND;
    mig_handles[device->index][number].index = device->index;
    mig_handles[device->index][number].epoch = device->epoch;
    mig_handles[device->index][number].instance = number + 1;
    *mig = (Device)&mig_handles[device->index][number];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device mig, unsigned *id) { CHECK(mig); *id = mig->instance; return mig->instance ? SUCCESS : NOT_SUPPORTED; }
int nvmlDeviceGetComputeInstanceId(Device mig, unsigned *id) { CHECK(mig); *id = 0; return mig->instance ? SUCCESS : NOT_SUPPORTED; }

int nvmlDeviceGetAttributes_v2(Device mig, Attributes *found)
{
    CHECK(mig);
    memset(found, 0, sizeof *found);
    found->multiprocessors = 14;
    found->gi_slices = found->ci_slices = 1;
    found->memory_mib = 3 << 10;
    return mig->instance ? SUCCESS : NOT_SUPPORTED;
}

#ifndef WITHOUT_EVENTS
int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) { CHECK(device); *types = XID_EVENT; return SUCCESS; }
int nvmlEventSetCreate(EventSet *set) { *set = calloc(1, sizeof **set); return SUCCESS; }
int nvmlEventSetFree(EventSet set) { free(set); return SUCCESS; }

int nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set)
{
    (void)types;
    CHECK(device);
    set->devices[device->index] = device;
    return SUCCESS;
}

/* Whether an event of the GPU is for this set. */
static int listens(EventSet set, int index)
{
    if (!getenv("TESSERA_STUB_OTHER_SET"))
        return set->devices[index] != NULL;
    for (int other = 0; other < GPUS; other++)
        if (other != index && set->devices[other])
            return 1;
    return 0;
}

/* The XID that waits for a set, and whose it is; -1 for none. */
static int next_xid(EventSet set, Device *device)
{
    for (int index = 0; index < GPUS; index++) {
        int xid = listens(set, index) ? number_in("xid", index, -1, 1) : -1;
        if (xid >= 0) {
            *device = set->devices[index];
            if (!*device)
                nvmlDeviceGetHandleByIndex_v2(index, device);
            return xid;
        }
    }
    return -1;
}

int nvmlEventSetWait_v2(EventSet set, EventData *data, unsigned timeout_ms)
{
    const char *given = getenv("TESSERA_STUB_STEP_MS");
    const unsigned step_ms = given ? (unsigned)atoi(given) : 10;
    const struct timespec step = {step_ms / 1000, (long)(step_ms % 1000) * 1000 * 1000};
    for (unsigned waited = 0;; waited += step_ms) {
        int xid = next_xid(set, &data->device);
        if (xid >= 0) {
            data->type = XID_EVENT;
            data->data = xid;
            data->gi = data->ci = 0xFFFFFFFF;
            return SUCCESS;
        }
        if (waited >= timeout_ms)
            return TIMEOUT;
        nanosleep(&step, NULL);
    }
}
#endif
