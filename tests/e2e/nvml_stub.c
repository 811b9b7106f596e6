/* A small libnvidia-ml.so.1: what the agent needs of NVML to find, probe and watch two GPUs, and nothing else.
 *
 * It is steered by files in the folder that TESSERA_STUB_DIR names:
 *   xid<i>    holds a number: GPU i raises that XID, once, and the file is removed
 *   epoch<i>  its content changes: GPU i was reset, handles from before are dead
 * Everything that is missing here is "function not found" to the agent, as with a driver that is older than a feature.
 *
 *   cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o libnvidia-ml.so.1 nvml_stub.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { GPUS = 2, MAX_EPOCHS = 64, XID_EVENT = 8, LEVEL_SYSTEM = 50, ARCH_AMPERE = 7, BRAND_NVIDIA = 14 };

typedef struct { int index, epoch; } *Device;
typedef struct { Device device; } *EventSet;
typedef struct { char legacy[16]; unsigned domain, bus, device, pci_device, pci_subsystem; char bus_id[32]; } PciInfo;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { Device device; unsigned long long type, data; unsigned gi, ci; } EventData;

static int initialised;
static struct { int index, epoch; } handles[GPUS][MAX_EPOCHS];

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
    if (consume && value != fallback)
        unlink(path);
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

int nvmlDeviceGetUUID(Device device, char *text, unsigned length) { CHECK(device); uuid_of(device->index, text, length); return SUCCESS; }
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
    memory->total = 24ULL << 30;
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

int nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long *types) { CHECK(device); *types = XID_EVENT; return SUCCESS; }
int nvmlEventSetCreate(EventSet *set) { *set = calloc(1, sizeof **set); return SUCCESS; }
int nvmlEventSetFree(EventSet set) { free(set); return SUCCESS; }

int nvmlDeviceRegisterEvents(Device device, unsigned long long types, EventSet set)
{
    (void)types;
    CHECK(device);
    set->device = device;
    return SUCCESS;
}

int nvmlEventSetWait_v2(EventSet set, EventData *data, unsigned timeout_ms)
{
    const struct timespec step = {0, 10 * 1000 * 1000};
    for (unsigned waited = 0;; waited += 10) {
        int xid = number_in("xid", set->device->index, -1, 1);
        if (xid >= 0) {
            data->device = set->device;
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
